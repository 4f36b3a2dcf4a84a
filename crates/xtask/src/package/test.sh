# Installs a package under an overlay of this machine, uses it, and removes it. In namespaces of its
# own: its mounts and processes end with it. There is no systemd here: the unit's command line runs
# as the unit says, without what only systemd does (its sandbox, its directories).
set -eu
over=$1 deb=$2
fail() { echo "package: $*" >&2; exit 1; }

ip link set lo up
mount -t tmpfs none "$over"
mkdir "$over/upper" "$over/work" "$over/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$over/upper,workdir=$over/work" "$over/all"
all=$over/all
mount -t proc proc "$all/proc"
mount --rbind /dev "$all/dev"
mount --rbind /sys "$all/sys"
mount -t tmpfs none "$all/tmp"
mount -t tmpfs none "$all/run"
mkdir -m 755 "$all/run/mount"
cp "$deb" "$all/tmp/lanefs.deb"
inside() { chroot "$all" "$@"; }

inside dpkg --purge lanefs >/dev/null 2>&1 || true
inside dpkg -i /tmp/lanefs.deb
inside lanefs --version
inside man -w lanefs lanefs-export-add >/dev/null
inside man -w 8 mount.lanefs mount.fuse.lanefs >/dev/null
for file in bash-completion/completions/lanefs zsh/vendor-completions/_lanefs fish/vendor_completions.d/lanefs.fish; do
    [ -s "$all/usr/share/$file" ] || fail "no $file"
done
units=/usr/lib/systemd/system
inside systemd-analyze verify "$units/lanefs-server@.service" "$units/lanefs-mount@.service"
exposure=$(inside systemd-analyze security --offline=true --threshold=30 "$units/lanefs-server@.service" | tail -n 1)
echo "$exposure"
# All processes must see a mount, and the unit must see the file system.
exposure=$(inside systemd-analyze security --offline=true --threshold=45 "$units/lanefs-mount@.service" | tail -n 1)
echo "$exposure"
inside getent passwd lanefs >/dev/null || fail "there is no user lanefs"
[ ! -e "$all/var/lib/lanefs" ] || fail "data before anything was started"

# The value of an option of the unit, for the instance one.
unit() { sed -n "s/^$1=//p" "$all$units/lanefs-server@.service" | sed 's/%i/one/g'; }
inside install -d -o lanefs -g lanefs -m 0700 "/var/lib/$(unit StateDirectory)"
for words in $(unit Environment); do export "$words"; done
# If this machine allows it.
ulimit -n "$(unit LimitNOFILE)" 2>/dev/null || true
start=$(unit ExecStart | sed 's/[$]{LANEFS_LISTEN}/$LANEFS_LISTEN/')
exec 3< <(eval "exec chroot '$all' setpriv --reuid lanefs --regid lanefs --clear-groups --no-new-privs \
    --bounding-set -all --inh-caps -all $start" 2>&1)
server=$!
while read -r line <&3; do
    echo "server: $line"
    case $line in listening*) break ;; esac
done
[ "${line#listening}" != "$line" ] || fail "the server did not start"
secret=/var/lib/lanefs/one/secret
inside lanefs export add --secret-file $secret 127.0.0.1 all / --squash none
inside lanefs export list --secret-file $secret 127.0.0.1

mkdir "$all/tmp/mnt"
inside mount -t lanefs -o "secret_file=$secret,log=/tmp/log,noexec" 127.0.0.1/all /tmp/mnt
echo kept >"$all/tmp/mnt/file"
[ "$(cat "$all/tmp/mnt/file")" = kept ] || fail "what was written is not there"
inside umount /tmp/mnt
inside mount -t fuse.lanefs -o "secret_file=$secret,log=/tmp/log,ro" 127.0.0.1/all /tmp/mnt
[ "$(cat "$all/tmp/mnt/file")" = kept ] || fail "what was kept is not there"
inside umount /tmp/mnt
kill "$server"
while read -r line <&3; do echo "server: $line"; done
exec 3<&-

# A purge leaves stores and their user.
inside dpkg --purge lanefs
[ -s "$all$secret" ] && inside getent passwd lanefs >/dev/null || fail "a store went with the package"
inside dpkg -i /tmp/lanefs.deb
rm -r "$all/var/lib/lanefs/one"
inside dpkg -r lanefs
[ -s "$all/etc/lanefs/server.conf" ] || fail "removing took the configuration"
[ ! -e "$all/usr/bin/lanefs" ] && [ ! -L "$all/usr/sbin/mount.lanefs" ] || fail "removing left the program"
inside dpkg --purge lanefs
! inside getent passwd lanefs >/dev/null || fail "the user lanefs is left"
left=$(cd "$over/upper" && find . -iname '*lanefs*' ! -type c ! -path './var/lib/dpkg/*' ! -path './var/cache/man/*')
[ -z "$left" ] || fail "left behind: $left"
echo "package: installed, used and purged"

# Installs a package in a fresh Debian and follows README there, as root and as an ordinary user. In
# namespaces of its own: its mounts and processes end with it. Arguments: the folder of the system,
# the package, and a file of README's lines: `serve LINE` for the one that keeps running, `run LINE`
# for the others.
set -eu
root=$1 deb=$2 lines=$3
fail() { echo "debian: $*" >&2; exit 1; }

# What the kernel and an installed system provide: a hostname, /proc, /sys, and a /dev with fuse.
# There is no /etc/hosts: debootstrap makes none.
hostname fresh
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 none "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
# As udev has it.
mknod -m 666 "$root/dev/fuse" c 10 229
ln -s /proc/self/fd "$root/dev/fd"
for name in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${name#*:}" "$root/dev/${name%:*}"; done
mkdir -m 1777 "$root/dev/shm"
mkdir "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=755 none "$root/run"
cp "$deb" "$root/root/lanefs.deb"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# Up to here it uses this machine's network, for the package's dependencies.
cp /etc/resolv.conf "$root/etc/resolv.conf"
inside apt-get update -qq
inside DEBIAN_FRONTEND=noninteractive apt-get install -y -qq /root/lanefs.deb
# As an installed system has it: systemd makes it, and fusermount3 unmounts nothing without.
[ -e "$root/etc/mtab" ] || ln -s ../proc/self/mounts "$root/etc/mtab"
inside useradd --create-home --shell /bin/bash ordinary

cat >"$root/root/walk" <<'WALK'
# For a user who has just logged in.
set -u
mkdir work
cd work
words=$(sed -n 's/^serve //p' /root/lines)
exec 3< <(eval "exec $words" 2>&1)
server=$!
while read -r line <&3; do
    echo "  $line"
    case $line in listening*) break ;; esac
done
[ "${line#listening}" != "$line" ] || { echo "the server did not start" >&2; exit 1; }
while read -r kind line <&4; do
    [ "$kind" = run ] || continue
    echo "\$ $line"
    sh -c "$line" 2>"$HOME/said" || { echo "failed: $line" >&2; cat "$HOME/said" >&2; exit 1; }
    cat "$HOME/said"
    ! grep -q lanefs "$HOME/said" || { echo "said something: $line" >&2; exit 1; }
done 4</root/lines
kill "$server"
while read -r line <&3; do echo "  $line"; done
WALK
cp "$lines" "$root/root/lines"
chmod 755 "$root/root"

for user in root ordinary; do
    echo "-- as $user"
    # Without a network but loopback.
    unshare --net sh -c 'ip link set lo up && exec chroot "$@"' sh "$root" \
        env -i TERM=dumb su - "$user" -c "bash /root/walk" || fail "README does not work for $user"
done
# The mounts of this machine are listed as well.
! grep -F " $root/" /proc/self/mountinfo | grep -F " - fuse.lanefs " || fail "mounts are left"
echo "debian: installed, and README followed as root and as an ordinary user"

# Runs the package's units under systemd: a server, a mount by fstab, a cluster of two servers and a mount
# of its own unit, with kills. Three hosts, each a copy of the system that is booted by systemd-nspawn, in
# namespaces of this script's own: all ends with it. Arguments: the folder of the system, and the package.
set -eu
root=$1 deb=$2
fail() { echo "units: $*" >&2; exit 1; }
at() { # HOST COMMAND...: as root of that host
    leader=$(pgrep -P "$(cat "$root-$1.pid")" | head -n 1)
    shift
    nsenter --all --target "$leader" env -C / -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb "$@"
}
active() { # HOST UNIT: within a minute
    for _ in $(seq 600); do
        [ "$(at "$1" systemctl is-active "$2" 2>/dev/null)" != active ] || return 0
        sleep 0.1
    done
    at "$1" journalctl --no-pager --lines=20 --unit "$2" >&2
    fail "$2 on host $1 is not active"
}

mount -t proc proc /proc
mount -t tmpfs none /run
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
cp "$deb" "$root/root/lanefs.deb"
chroot "$root" dpkg --install /root/lanefs.deb >/dev/null
rm "$root/usr/sbin/policy-rc.d"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"

ip link set lo up
ip link add bridge type bridge
ip link set bridge up
for host in 1 2 3; do
    cp -a "$root" "$root-$host"
    echo "host$host" >"$root-$host/etc/hostname"
    ip netns add "$host"
    ip link add "to$host" type veth peer name eth0 netns "$host"
    ip link set "to$host" master bridge up
    ip -n "$host" addr add "10.77.0.$host/24" dev eth0
    ip -n "$host" link set lo up
    ip -n "$host" link set eth0 up
    systemd-nspawn --quiet --directory "$root-$host" --boot --register=no --keep-unit --bind=/dev/fuse \
        --network-namespace-path="/run/netns/$host" --console=passive \
        </dev/null >"$root-$host.log" 2>&1 &
    echo $! >"$root-$host.pid"
done
for host in 1 2 3; do active "$host" basic.target; done

echo "a server, and a mount by fstab"
at 1 mkdir -p /etc/lanefs
at 1 sh -c 'echo LANEFS_LISTEN=10.77.0.1:7117 >/etc/lanefs/server-one.conf'
at 1 systemctl enable --quiet --now lanefs-server@one
install -D -m 600 "$root-1/var/lib/lanefs/one/secret" "$root-3/etc/lanefs/secret"
at 3 mkdir /data
at 3 sh -c 'echo "10.77.0.1,10.77.0.2:/ /data lanefs _netdev 0 0" >/etc/fstab'
at 3 systemctl daemon-reload
at 3 systemctl start data.mount
at 3 sh -c 'echo before >/data/before && cat /data/before >/dev/null'

echo "two servers"
etcd=http://10.77.0.1:2379
at 1 sh -c "printf 'ETCD_LISTEN_CLIENT_URLS=$etcd\nETCD_ADVERTISE_CLIENT_URLS=$etcd\n' >>/etc/default/etcd"
at 1 systemctl restart etcd || { at 1 journalctl --no-pager --lines=20 --unit etcd >&2; fail "no etcd"; }
at 1 systemctl stop lanefs-server@one
at 1 runuser -u lanefs -- lanefs cluster init --store /var/lib/lanefs/one/store --etcd "$etcd" >/dev/null
at 1 systemctl start lanefs-server@one
token=$(at 1 runuser -u lanefs -- lanefs cluster token --store /var/lib/lanefs/one/store \
    --secret-file /var/lib/lanefs/one/secret 2>/dev/null)
at 2 mkdir -p /etc/lanefs
at 2 sh -c "printf 'LANEFS_LISTEN=10.77.0.2:7117\nLANEFS_OPTIONS=\"--cluster $etcd --join $token\"\n' \
    >/etc/lanefs/server-two.conf"
at 2 systemctl enable --quiet --now lanefs-server@two
up=$(at 1 lanefs servers "$etcd" 2>/dev/null | grep -c ' up ')
[ "$up" = 2 ] || fail "$up servers are up, not 2"
at 3 sh -c 'for i in $(seq 20); do mkdir -p /data/$i; head -c 3000000 /dev/urandom >/data/$i/f; done
    cd /data; find . -type f | xargs sha256sum >/root/sums; sync'

echo "both servers are killed"
at 1 systemctl kill --kill-whom=main --signal=KILL lanefs-server@one
at 2 systemctl kill --kill-whom=main --signal=KILL lanefs-server@two
active 1 lanefs-server@one
active 2 lanefs-server@two
at 3 sh -c 'cd /data; sha256sum --quiet --check /root/sums'

echo "a mount by its unit is killed"
at 2 mkdir /data
at 2 sh -c "printf 'LANEFS_SOURCE=10.77.0.2\nLANEFS_DIR=/data\nLANEFS_OPTIONS=secret_file=%s\n' \
    /var/lib/lanefs/two/secret >/etc/lanefs/mount-data.conf"
at 2 systemctl enable --quiet --now lanefs-mount@data
cp "$root-3/root/sums" "$root-2/root/sums"
at 2 sh -c 'cd /data; sha256sum --quiet --check /root/sums'
at 2 systemctl kill --kill-whom=main --signal=KILL lanefs-mount@data
active 2 lanefs-mount@data
at 2 sh -c 'cd /data; sha256sum --quiet --check /root/sums'

echo "all are reloaded and stopped"
at 2 systemctl reload lanefs-server@two lanefs-mount@data
at 2 systemctl stop lanefs-mount@data lanefs-server@two
at 3 umount /data
at 1 systemctl stop lanefs-server@one
for host in 1 2; do
    failed=$(at "$host" systemctl list-units --failed --no-legend 'lanefs-*')
    [ -z "$failed" ] || fail "host $host: $failed"
done
for host in 1 2 3; do kill "$(cat "$root-$host.pid")"; done
wait
# What nspawn leaves.
find /sys/fs/cgroup -depth -path '*/payload*' -type d -exec rmdir {} + 2>/dev/null || true

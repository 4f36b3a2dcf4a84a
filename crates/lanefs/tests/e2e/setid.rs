//! What running a file gives, its contents' change takes away: as on the local file system.

use crate::beside::{has, same};
use crate::stage::{Stage, must, program, skip};

#[test]
fn a_write_takes_set_id_bits_away() {
    let Some(stage) = Stage::new("set-id") else { return };
    let up = stage.up(&[]);
    same(
        &stage,
        &up.dir,
        r#"
        fresh() { rm -f f; echo 12345 >f; chown 5001:5002 f; chmod $1 f; }
        for mode in 4755 2745 6777 755; do
            for who in 5001:5002 0:0 5001:9:5002 5001:9; do
                for how in 'echo x >>f' 'echo x 1<>f' ': >f' ': >>f' 'truncate -s 3 f' 'truncate -s 9 f' \
                    'chgrp 5002 f' 'chown 5001 f' 'chown 5001:5002 f' 'chmod 6755 f' 'chmod g+s f' \
                    'dd if=/dev/zero of=f bs=1 count=3 conv=notrunc status=none' 'cat f >/dev/null' 'touch f' \
                    'fallocate -l 9 f' 'fallocate -p -o 1 -l 3 f' 'fallocate -z -l 99 f' \
                    'exec 3<>f; echo a >&3; echo b >&3' 'cp /bin/true f' 'ln f g; mv g f' 'dd of=f count=0 status=none'; do
                    fresh $mode
                    as $who sh -c "$how" 2>/dev/null
                    echo "$mode $who $how: $? $(stat -c '%a %s' f)"
                done
            done
        done
        umask 0; as 5001:5002 sh -c 'umask 0; install -m 6755 /bin/true made 2>&1'; ls made 2>&1
        mkdir d; chmod 6777 d; chown 5001:5002 d; stat -c %a d; as 5001:5002 chgrp 5002 d; stat -c %a d
        touch d/f; mkdir d/e; stat -c '%a %g' d/f d/e; chmod 777 d; stat -c %a d
    "#,
    );
    up.stop();
}

#[test]
fn a_write_takes_capabilities_away() {
    if !has("setcap") || !has("getcap") {
        return skip("capabilities", "needs setcap and getcap (package libcap2-bin)");
    }
    let Some(stage) = Stage::new("capabilities") else { return };
    let up = stage.up(&[]);
    same(
        &stage,
        &up.dir,
        r#"
        for how in 'echo x >>f' ': >f' ': >>f' 'truncate -s 1 f' 'chown 0 f' 'chown 5001 f' 'chmod 700 f' \
            'chmod 4755 f' 'touch f' 'cat f >/dev/null' 'exec 3<>f; echo a >&3; echo b >&3' 'mv f g; mv g f' \
            'cp -a f g; mv g f' 'setcap -r f' 'as 5001:1 setcap cap_chown+ep f' 'as 5001:1 sh -c "echo y >>f"'; do
            rm -f f; cp /bin/true f; chmod 4777 f
            try setcap cap_net_raw,cap_chown+ep f; getcap -n f
            eval "$how" 2>/dev/null; echo "$how: $? $(stat -c %a f) $(getcap -n f)"
        done
    "#,
    );
    up.stop();
}

#[test]
fn the_other_mount_sees_and_does_the_same() {
    let Some(stage) = Stage::new("set-id-two") else { return };
    let up = stage.up(&[]);
    let other = stage.mount(&up.address, "other", &["--export", "up"]);
    let sh = |text: &str, dir: &std::path::Path| {
        must(program("sh").args(["-c", text]).current_dir(dir)).trim().to_owned()
    };
    let write = "setpriv --reuid=5001 --regid=5001 --clear-groups sh -c 'echo x >>f'";
    sh("echo 1 >f; chmod 6777 f; stat -c %a f", &up.dir);
    assert_eq!(sh("stat -c %a f", &other.dir), "6777");
    sh(write, &other.dir);
    assert_eq!(sh("stat -c %a f", &up.dir), "777");
    sh("chmod 4777 f", &other.dir);
    sh(write, &up.dir);
    assert_eq!(sh("stat -c %a f", &other.dir), "777");
    other.stop();
    up.stop();
}

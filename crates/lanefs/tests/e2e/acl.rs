//! POSIX access control lists through the mount: with the tools that people use, and compared with
//! what the local file system does.

use crate::fixture::{Fixture, must, program, skip};
use crate::script_comparison::{has, same};

fn fixture(test: &str) -> Option<Fixture> {
    if !has("setfacl") || !has("getfacl") {
        skip(test, "needs setfacl and getfacl (package acl)");
        return None;
    }
    Fixture::new(test)
}

#[test]
fn lists_grant_and_deny_as_on_a_local_file_system() {
    let Some(fixture) = fixture("acl-grant") else { return };
    let up = fixture.up(&[]);
    same(
        &fixture,
        &up.dir,
        r#"
        echo secret >f; chown 5001:6001 f; chmod 640 f
        who='5001:7777 5002:7777 5003:7777 5004:6001 5005:6002 5006:1:6002,6003 5007:1:9,6003 5008:1 0:0'
        rights() { for one in $who; do
            for bit in r w x; do as $one test -$bit f && printf $bit || printf -; done
            as $one cat f >/dev/null 2>&1 && printf ' reads' || printf ' no'
            as $one sh -c ': >>f' 2>/dev/null && echo ' writes' || echo ' no'
        done; }
        try rights
        try as 5002:7777 setfacl -m u:5002:rwx f
        try as 5001:7777 setfacl -m u:5002:rw,u:5003:---,g:6002:r,g:6003:wx f
        try getfacl -n f; stat -c '%a %A' f; ls -ld f | cut -c1-11; try rights
        try chmod 600 f; getfacl -nc f; try rights
        try chmod 675 f; getfacl -nc f; try rights
        try chmod 607 f; getfacl -nc f; try rights
        try setfacl -m m::r f; getfacl -nc f; try rights
        try setfacl -x u:5002 f; getfacl -nc f
        try setfacl -b f; getfacl -nc f; stat -c %a f; ls -ld f | cut -c1-11; try rights
        for n in $(seq 1 40); do list=$list,u:$n:rw; done
        try setfacl -m "${list#,}" f; getfacl -nc f; try rights
    "#,
    );
    up.stop();
}

/// Folders near the root lie in several shards: what is moved between them is allowed by lists of both.
#[test]
fn lists_count_across_shards() {
    let Some(fixture) = fixture("acl-across") else { return };
    let up = fixture.up(&[]);
    same(
        &fixture,
        &up.dir,
        r#"
        for n in 1 2 3 4; do
            mkdir from$n to$n; chmod 700 from$n to$n; touch from$n/f from$n/g; mkdir from$n/d; chown 5002 from$n/g
            setfacl -m u:5002:rwx from$n; setfacl -d -m u:5002:rwx to$n
            try as 5002:1 mv from$n/f to$n/f; setfacl -m u:5002:wx to$n
            try as 5002:1 mv from$n/f to$n/f; try as 5002:1 ln from$n/g to$n/g
            try as 5002:1 mv from$n/d to$n/d; setfacl -m u:5002:rwx from$n/d
            try as 5002:1 mv from$n/d to$n/d; try as 5003:1 rm to$n/f; try as 5002:1 mkdir to$n/made
            getfacl -n to$n/f to$n/g to$n/d to$n/made; try as 5002:1 rm to$n/f; try as 5002:1 rmdir to$n/d
        done
    "#,
    );
    up.stop();
}

#[test]
fn folders_hand_their_default_lists_down() {
    let Some(fixture) = fixture("acl-default") else { return };
    let up = fixture.up(&[]);
    same(
        &fixture,
        &up.dir,
        r#"
        show() { for one in "$@"; do stat -c '%n %a %F' $one; getfacl -nc --skip-base $one; done; }
        mkdir d; chmod 2770 d; chgrp 6001 d
        try setfacl -d -m u::rwx,u:5002:rwx,g::r-x,g:6002:rw,o::r d; show d
        umask 077
        touch d/f; mkdir d/e; mkdir -m 711 d/m; ln -s f d/l; mkfifo d/p; mknod d/c c 1 3
        (umask 0; touch d/g; mkdir d/h); touch d/e/f; mkdir -p d/e/x/y; install -m 4750 /bin/true d/i
        show d/f d/e d/m d/p d/c d/g d/h d/e/f d/e/x/y d/i
        chmod 777 d; as 5002:1 touch d/mine; show d/mine; as 5003:1 touch d/other; show d/other
        cp -a d copy; show copy copy/e copy/f copy/e/f
        cp -r d plain; show plain plain/e plain/f
        try setfacl -d -m u:5002:rwx d/f; try setfacl -k d/f
        try setfacl -d -m o::- d/e; show d/e; touch d/e/new; show d/e/new
        mv d/f moved; show moved; ln d/g linked; show linked
        try setfacl -k d; show d; touch d/after; mkdir d/afterdir; show d/after d/afterdir
        try setfacl -d -m u::rwx,g::rwx,o::- d; show d; touch d/three; mkdir d/threedir; show d/three d/threedir
        try setfacl -R -b d; show d d/e d/g
        chmod 1777 d; setfacl -m u:5002:- d; as 5002:1 ls d; as 5003:1 ls d
    "#,
    );
    up.stop();
}

#[test]
fn lists_are_attributes_with_their_own_errors() {
    let Some(fixture) = fixture("acl-xattr") else { return };
    if !has("getfattr") {
        return skip("acl-xattr", "needs getfattr (package attr)");
    }
    let up = fixture.up(&[]);
    same(
        &fixture,
        &up.dir,
        r#"
        touch f; mkdir d; ln -s f l; a=system.posix_acl_access; b=system.posix_acl_default
        try getfattr -d -m - f d; try getfattr -n $a f; try getfattr -n $b d; try getfattr -hn $a l
        setfacl -m u:1:rwx f; setfacl -d -m u:2:rx d; setfacl -m g:3:r d
        try getfattr -d -e hex -m - f d
        for value in 0x 0x01 0x02000000 0x01000000 0x0200000001000700ffffffff 0x020000000100; do
            try setfattr -n $a -v $value f; getfacl -nc f; try setfattr -n $b -v $value d; getfacl -nc d
        done
        acl=0x0200000001000600ffffffff02000700010000000400040ffffffff
        try setfattr -n $a -v 0x0200000001000600ffffffff0400040ffffffff20000000ffffffff f
        try setfattr -n $a -v 0x0200000001000600ffffffff04000400ffffffff20000000ffffffff f; getfacl -nc f; stat -c %a f
        try setfattr -n $a -v 0x0200000001000600ffffffff0200070001000000040004 f
        try setfattr -hn $a -v 0x0200000001000600ffffffff04000400ffffffff20000000ffffffff l
        try setfattr -n $b -v 0x0200000001000600ffffffff04000400ffffffff20000000ffffffff f
        try as 5001:1 setfattr -n $a -v 0x0200000001000600ffffffff04000400ffffffff20000000ffffffff f
        try as 5001:1 getfattr -n $b -e hex d
        try setfattr -x $a f; try setfattr -x $a f; try setfattr -x $b d; try setfattr -x $b d; try setfattr -x $b f
        try setfattr -n system.other -v x f; try getfattr -n system.other f
    "#,
    );
    up.stop();
}

#[test]
fn lists_hold_at_every_mount_and_after_a_crash() {
    let Some(fixture) = fixture("acl-two") else { return };
    let mut up = fixture.up(&[]);
    let other = fixture.mount(&up.address, "other", &["--export", "up"]);
    let script = |text: &str, dir: &std::path::Path| {
        must(program("bash").args(["-c", text]).current_dir(dir))
    };
    script(
        "echo x >f; chmod 600 f; mkdir d; setfacl -m u:5002:r f; setfacl -d -m u:5002:rwx d",
        &up.dir,
    );
    let cat = "setpriv --reuid=5002 --regid=1 --clear-groups cat f";
    assert_eq!(script(cat, &other.dir), "x\n");
    let before = script("touch d/new; getfacl -nR .", &other.dir);
    assert!(
        before.contains("user:5002:r--") && before.contains("default:user:5002:rwx"),
        "{before}"
    );
    up.kill_server();
    assert_eq!(script("getfacl -nR .", &up.dir), before);
    script("setfacl -m u:5002:- f", &up.dir);
    script(&format!("! {cat} 2>/dev/null"), &other.dir);
    if has("rsync") {
        let copied = "mkdir copy && rsync -aAX f d copy/ && cd copy && getfacl -nR f d";
        assert_eq!(script(copied, &up.dir), script("getfacl -nR f d", &other.dir));
    }
    other.stop();
    up.stop();
}

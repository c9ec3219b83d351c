#!/bin/sh
# Makes the container's root filesystem: the binary, the libraries it needs, CA bundle, accounts, and nothing else (no shell, no
# package manager). The Dockerfile runs it; so does the test, which starts the result in a chroot.
#
#   docker/rootfs.sh BINARY ROOT
set -eu

binary=$1
root=$2

mkdir -p "$root/usr/bin" "$root/etc/tributary" "$root/etc/ssl/certs" "$root/tmp" "$root/run"
install -m 0755 "$binary" "$root/usr/bin/tributary"
strip --strip-unneeded "$root/usr/bin/tributary"

# Every shared object that the loader would open, at the path where it looks for it.
copy_library() {
    [ -e "$root$1" ] && return
    mkdir -p "$root$(dirname "$1")"
    cp -L "$1" "$root$1"
    strip --strip-unneeded "$root$1" 2>/dev/null || true
}
ldd "$binary" | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' | while read -r library; do
    copy_library "$library"
done

# Names are resolved by glibc, which opens these by name at run time.
libc=$(ldd "$binary" | awk '/libc\.so\.6/ { print $3 }')
for name in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
    [ ! -e "$(dirname "$libc")/$name" ] || copy_library "$(dirname "$libc")/$name"
done

[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
printf 'root:x:0:0:root:/:/nonexistent\ntributary:x:65532:65532:tributary:/:/nonexistent\n' >"$root/etc/passwd"
printf 'root:x:0:\ntributary:x:65532:\n' >"$root/etc/group"
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
cp "$(dirname "$0")/tributary.ini" "$root/etc/tributary/tributary.ini"
chmod 1777 "$root/tmp"

#!/bin/sh
# Make a Python of aarch64 in a folder, for an emulator to run: aarch64.sh PYTHON FOLDER, with a Python that has pip.
#
# Its root is Debian's packages and wheels, all unpacked and nothing installed. FOLDER/python runs a process that sees
# the files of this machine, and those of the root before them; processes that it starts by its own name are such, too.
# Needs to be root (debootstrap asks for that), debootstrap, dpkg and qemu-user-static.
set -eu

python=$1
folder=$(realpath -m "$2")
root=$folder/root
wheels=$root/usr/local/lib/python3.11/dist-packages

mkdir -p "$folder"
rm -rf "$root"
debootstrap --foreign --arch=arm64 --variant=minbase --include=python3 bookworm "$root" > "$folder/debootstrap.log"
for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder" .
platforms=$(for libc in 2_17 2_24 2_26 2_27 2_28 2_31 2_34; do echo "--platform manylinux_${libc}_aarch64"; done)
"$python" -m pip install --quiet --target "$wheels" --only-binary=:all: --implementation cp --python-version 3.11 $platforms \
  --platform manylinux2014_aarch64 "$(echo "$folder"/cujit-*.whl)[cu13]" hypothesis pytest pytest-xdist

cat > "$folder/python" <<END
#!/bin/sh
exec qemu-aarch64-static -0 "\$0" -L '$root' '$root/usr/bin/python3.11' "\$@"
END
chmod +x "$folder/python"

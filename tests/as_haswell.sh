#!/bin/sh
# Run Python, and each Python that it starts, on an emulated processor without VNNI: as_haswell.sh PYTHON ARGUMENT...
set -eu
command -v qemu-x86_64 >/dev/null || {
  echo "$0: there is no qemu-x86_64, which emulates the processor; install qemu-user (on Debian: apt install qemu-user)" >&2
  exit 1
}
python=$(realpath -s "$1")
shift
root=$(realpath -m build/haswell)
# What the emulated processor has, where the backend looks: QEMU takes files below the folder of -L for those of the system.
mkdir -p "$root/proc"
echo "flags : fpu sse sse2 ssse3 sse4_1 sse4_2 avx avx2 bmi1 bmi2 f16c fma" >"$root/proc/cpuinfo"
# Python finds its environment from the name it was called by, and calls itself so again.
wrapper=$(dirname "$python")/python-haswell
cat >"$wrapper.$$" <<END
#!/bin/sh
exec qemu-x86_64 -cpu Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm -L "$root" -0 "$wrapper" "$python" "\$@"
END
chmod +x "$wrapper.$$"
mv "$wrapper.$$" "$wrapper"
exec "$wrapper" "$@"

#!/bin/bash
# Builds the Containerfile and runs what comes out, with no registry and no container engine: as root, with buildah.
# Both base images are made out of this machine's Python; the one for running has no shell. Needs `make wheels` before.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-.venv/bin/python}
pip=$("$python" -c 'import pathlib, pip; print(pathlib.Path(pip.__file__).parent)')

# Python, its standard library, and every shared library either needs.
"$python" - "$work" "$pip" <<'END'
import os, pathlib, shutil, subprocess, sys

top, pip = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
binary = pathlib.Path(os.path.realpath(sys.executable))
library = pathlib.Path(os.__file__).parent
GLIBC = ("librt", "libpthread", "libdl", "libm", "libutil", "libresolv", "libnss_dns", "libnss_files", "libgcc_s")


def needed(path: str) -> list[str]:
    said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return [word for word in said.split() if word.startswith("/")]


def copy(root: pathlib.Path, path: str) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(os.path.realpath(path), target)


def make(root: pathlib.Path, *programs: str) -> None:
    left_out = shutil.ignore_patterns("test", "__pycache__", "idlelib", "tkinter", "site-packages", "config-*")
    shutil.copytree(library, root / str(library).lstrip("/"), symlinks=True, ignore=left_out)
    files = {str(binary), *map(str, library.glob("lib-dynload/*.so")), *programs}
    shared = {found for file in files for found in needed(file)}
    libc = next(pathlib.Path(file).parent for file in shared if "/libc.so" in file)
    shared |= {str(file) for name in GLIBC for file in libc.glob(f"{name}.so.[0-9]")}
    for file in {str(binary), *shared, *programs}:
        copy(root, file)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir(mode=0o1777)
    if not (root / "usr/bin/python3").exists():
        (root / "usr/bin/python3").symlink_to(binary)


make(top / "base")
make(top / "build", "/bin/sh", "/bin/mkdir")
shutil.copytree(pip, top / "build" / str(library).lstrip("/") / "site-packages" / "pip")
END

for name in base build; do
  container=$(buildah from scratch)
  buildah copy -q "$container" "$work/$name" /
  buildah config --env PATH=/usr/bin:/bin "$container"
  buildah commit -q "$container" "localhost/berth-try-$name" > /dev/null
  buildah rm "$container" > /dev/null
done
buildah bud --quiet --isolation chroot --build-arg BUILD_IMAGE=localhost/berth-try-build \
  --build-arg BASE_IMAGE=localhost/berth-try-base --tag localhost/berth-try . > /dev/null
buildah images --format '{{.Name}} {{.Size}}' localhost/berth-try

container=$(buildah from localhost/berth-try)
root=$(buildah mount "$container")
test -z "$(find "$root" -name sh -o -name bash -o -name dash -o -name busybox)"
test -s "$root/app/sbom.cdx.json"
unshare --mount bash -euo pipefail -s "$root" <<'END'
root=$1
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
mount -t tmpfs -o uid=65532,gid=65532,mode=0770 tmpfs "$root/data"
within=(env -i PATH=/usr/bin:/usr/sbin PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
  chroot --userspec=65532:65532 "$root" /usr/bin/python3)
"${within[@]}" -c 'import os; assert os.getuid() == os.getgid() == 65532'
! "${within[@]}" -c 'open("/written", "w")' 2> /dev/null
version=$("${within[@]}" -m berth.cli.main --version)
echo "berth $version, user 65532, read-only root, no shell"
"${within[@]}" -m berth.cli.main api --listen 127.0.0.1:0 --database sqlite:////data/berth.db \
  --pepper-file /data/pepper > "$root/data/said" 2>&1 &
api=$!
until url=$(grep -o 'http://[0-9.:]*' "$root/data/said"); do kill -0 $api; sleep 0.2; done
curl --fail --silent --show-error "$url/v2/address" -d '{"secret":"a-secret-of-yours","zone":"inet","ip_family":"ipv4",
  "service":{"service_name":"web","namespace_id":"ns-1","cluster_id":"cluster-1"}}'
echo
kill -TERM $api
wait $api
END
buildah rm "$container" > /dev/null
buildah rmi localhost/berth-try localhost/berth-try-base localhost/berth-try-build > /dev/null

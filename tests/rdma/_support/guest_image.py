"""Builds what a guest boots: Debian's kernel, and a first file system that reaches the host's.

Both lie in the user's cache.  Another kernel, or another `guest_init.sh`, makes them again.
"""

import gzip
import hashlib
import lzma
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import zlib
from typing import List, NamedTuple, Sequence

__all__ = ["Image", "NoGuest", "image"]

HERE = pathlib.Path(__file__).resolve().parent
INIT = HERE / "guest_init.sh"
# Program -> Debian's package that has it.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "modprobe": "kmod",
    "ip": "iproute2",
    "rdma": "iproute2",
    "ibv_devinfo": "ibverbs-utils",
    "numactl": "numactl",
}
# The kernel's modules that reach the host's files; all others load from there.
EARLY = ["virtio_pci", "9pnet_virtio", "9p", "overlay"]
# Where a download may be slow.
LIMIT_S = 300.0
# The header of a bzImage (Documentation/arch/x86/boot.rst).
SETUP_SECTORS, PAYLOAD = 0x1F1, 0x248


class NoGuest(Exception):
    """No guest can run here: the reason, and what to do."""


class Image(NamedTuple):
    """What qemu boots.

    Attributes
    ----------
    kernel, initrd : Path
        The uncompressed kernel, and the first file system.
    modules : Path
        The folder whose ``lib/modules`` is the kernel's.
    version : str
        The kernel's, as ``uname -r`` has it in the guest.
    """

    kernel: pathlib.Path
    initrd: pathlib.Path
    modules: pathlib.Path
    version: str


def run(command: Sequence[str], folder: pathlib.Path) -> str:
    """Return what the command writes; NoGuest if it fails."""
    with_sbin = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=with_sbin,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise NoGuest(f"{command[0]} took longer than {LIMIT_S:g} s") from None
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split())[-200:]
        raise NoGuest(f"{' '.join(command[:3])} failed: {said}") from None
    except OSError as error:
        raise NoGuest(f"{command[0]} does not start: {error.strerror}") from None
    return done.stdout


def require_programs() -> None:
    """Raise NoGuest if a program is missing."""
    if platform.machine() != "x86_64":
        raise NoGuest(f"the guest's kernel is for x86_64, this is {platform.machine()}")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [
        package for name, package in PROGRAMS.items() if shutil.which(name, path=path) is None
    ]
    if missing:
        wanted = " ".join(sorted(set(missing)))
        raise NoGuest(f"needs the packages {wanted}, which make nightly-rdma installs")


def kernel_package(folder: pathlib.Path) -> str:
    """Return the name of the package of the distribution's kernel."""
    if shutil.which("apt-cache") is None:
        raise NoGuest("needs a Debian kernel, and there is no apt here")
    for line in run(["apt-cache", "depends", "linux-image-amd64"], folder).splitlines():
        word, _, name = line.strip().partition(": ")
        if word == "Depends" and name.startswith("linux-image-"):
            return name
    raise NoGuest("apt has no package linux-image-amd64: run apt-get update on Debian")


def uncompressed(bz_image: bytes) -> bytes:
    """Return the ELF file in a bzImage, which boots without being unpacked by the guest."""
    sectors = bz_image[SETUP_SECTORS] or 4
    offset, length = struct.unpack_from("<II", bz_image, PAYLOAD)
    begin = (sectors + 1) * 512 + offset
    payload = bz_image[begin : begin + length]  # the last four bytes are its unpacked size
    if payload[:6] == b"\xfd7zXZ\0":
        found = lzma.LZMADecompressor().decompress(payload)
    elif payload[:2] == b"\x1f\x8b":
        found = zlib.decompressobj(31).decompress(payload)
    else:
        raise NoGuest(f"this kernel is packed in a way that is not known ({payload[:4].hex()})")
    if found[:4] != b"\x7fELF":
        raise NoGuest("the kernel's payload is no ELF file")
    return found


def unpack_kernel(package: str, folder: pathlib.Path) -> pathlib.Path:
    """Download and unpack the kernel's package unless that was done; return its root."""
    root = folder / package
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    # apt drops to a user of its own, which may not write into a home folder.
    run(["apt-get", "-o", "APT::Sandbox::User=root", "download", "-qq", package], folder)
    archives = sorted(folder.glob(f"{package}_*.deb"))
    if not archives:
        raise NoGuest(f"apt-get download {package} brought nothing")
    run(["dpkg-deb", "-x", str(archives[-1]), str(root)], folder)
    for archive in archives:
        archive.unlink()
    version = package[len("linux-image-") :]
    run(["depmod", "-b", str(root), version], folder)
    bz_image = (root / "boot" / f"vmlinuz-{version}").read_bytes()
    (root / "vmlinux").write_bytes(uncompressed(bz_image))
    (root / "complete").touch()
    return root


def module_files(root: pathlib.Path, version: str) -> List[pathlib.Path]:
    """Return the files of the early modules, each after those that it needs."""
    files: List[pathlib.Path] = []
    for module in EARLY:
        asked = ["modprobe", "-d", str(root), "-S", version, "--show-depends", module]
        for line in run(asked, root).splitlines():
            word, _, file = line.strip().partition(" ")
            if word == "insmod" and pathlib.Path(file.strip()) not in files:
                files.append(pathlib.Path(file.strip()))
    return files


def make_initrd(root: pathlib.Path, version: str) -> pathlib.Path:
    """Pack busybox, the early modules and `guest_init.sh`, unless that was done."""
    stamp = hashlib.sha256(INIT.read_bytes()).hexdigest()[:12]
    made = root / f"initrd-{stamp}.gz"
    if made.exists():
        return made
    tree = root / "initrd"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "newroot", "lower", "rw", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", tree / "bin" / "busybox")
    for number, file in enumerate(module_files(root, version)):
        shutil.copy(file, tree / "modules" / f"{number:02}-{file.name}")
    shutil.copy(INIT, tree / "init")
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"],
        cwd=tree,
        input=names.encode(),
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
        check=True,
    ).stdout
    unfinished = made.with_suffix(".new")
    unfinished.write_bytes(gzip.compress(packed, 1))
    os.replace(unfinished, made)
    return made


def image() -> Image:
    """Return the image, and make it first where it is not there.

    Raises
    ------
    NoGuest
        Something is missing.
    """
    require_programs()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "bytescheduler-guest"
    folder.mkdir(parents=True, exist_ok=True)
    package = kernel_package(folder)
    root = unpack_kernel(package, folder)
    version = package[len("linux-image-") :]
    return Image(root / "vmlinux", make_initrd(root, version), root, version)

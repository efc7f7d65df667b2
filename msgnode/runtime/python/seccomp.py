"""A seccomp filter: the kernel refuses the system calls that a stub in a sandbox has no use for.

It closes what Landlock leaves open: sockets of any kind, new processes and threads, signals, memory
that no limit counts, and changing the modes or owners of files.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys

_SET_SECCOMP, _MODE_FILTER = 22, 2
_SET_NO_NEW_PRIVS = 38
_SET_PARENT_DEATH_SIGNAL = 1
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# name: number on x86_64, on aarch64 (-1: there is none)
_REFUSED = {
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    "bind": (49, 200), "listen": (50, 201), "clone": (56, 220), "fork": (57, -1),
    "vfork": (58, -1), "execve": (59, 221), "execveat": (322, 281), "kill": (62, 129),
    "tkill": (200, 130), "tgkill": (234, 131), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "prlimit64": (302, 261),
    "setrlimit": (160, 164), "setpriority": (141, 140), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "memfd_create": (319, 279), "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "chmod": (90, -1), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1), "fchown": (93, 55),
    "lchown": (94, -1), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "utime": (132, -1), "utimes": (235, -1),
    "futimesat": (261, -1), "utimensat": (280, 88),
}  # fmt: skip
# Refused as unknown, so that libraries take another way, or none.
_UNKNOWN = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}  # fmt: skip


def no_new_privileges() -> bool:
    """Nothing this process starts gains rights. Whether that could be set."""
    return sys.platform == "linux" and _prctl(_SET_NO_NEW_PRIVS, 1, 0) == 0


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends."""
    if sys.platform == "linux":
        _prctl(_SET_PARENT_DEATH_SIGNAL, 9, 0)


def drop_capabilities() -> None:
    """Give up root's privileges over files and processes of others, if there are any."""
    if sys.platform == "linux":
        header = struct.pack("Ii", 0x20080522, 0)
        number = {"x86_64": 126, "aarch64": 91}.get(platform.machine())
        if number is not None:
            ctypes.CDLL(None).syscall(number, header, bytes(24))


def restrict() -> bool:
    """Install the filter for good. Needs no_new_privileges(). Whether it is in force."""
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return False
    program = _program(platform.machine())
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, and a pointer to them
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    return _prctl(_SET_SECCOMP, _MODE_FILTER, header) == 0


def _program(machine: str) -> bytes:
    audit, column = _ARCHITECTURES[machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for numbers, refusal in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for number in (each[column] for each in numbers.values()):
            if number >= 0:
                code.append((_JUMP_EQUAL, 0, 1, number))
                code.append((_RETURN, 0, 0, _ERRNO | refusal))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _prctl(option: int, first: int, second: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).prctl(option, first, second, 0, 0))

"""Does by ctypes the calls that Julia's UCX.jl makes by `ccall`. Bitcode that llvmlite makes here is registered from memory,
sent and run, and the function sends itself on. There are two processes. UCX shares their memory.

    from_python.py LIBFARJUMP
"""

import ctypes as c
import os
import socket
import sys
import time

import llvmlite.binding as llvm

SLOT = 1 << 16
# Seconds for all calls.
PATIENCE = 60
TRIPLE = f"{os.uname().machine}-linux-gnu"
UCS_OK, UCS_INPROGRESS, UCS_ERR_NO_MESSAGE = 0, 1, -1
UCP_FEATURE_RMA = 2

# In LLVM's assembly language, as a compiler of another language emits it. The payload is two numbers. The second one is the
# number of times that the function still sends itself on.
HOPS = f"""
target triple = "{TRIPLE}"

%param = type {{ ptr, i32, i32 }}
%message = type {{ ptr, ptr, i64 }}
%world = type {{ ptr, ptr, ptr, i64, i64, i64 }}

@name = internal constant [5 x i8] c"hops\\00"

declare i8 @ucp_register_ifunc(ptr, ptr, i64, ptr)
declare i8 @ucp_ifunc_msg_create(ptr, ptr, i64, ptr)
declare void @ucp_ifunc_msg_free(ptr byval(%message) align 8)
declare i8 @ucp_ifunc_send_nbix(ptr, ptr byval(%message) align 8, i64, ptr)

define i64 @hops_payload_bound(ptr %args, i64 %size) {{
  ret i64 %size
}}

define i32 @hops_payload_init(ptr %args, i64 %size, ptr %payload, ptr %used) {{
  %numbers = load <2 x i64>, ptr %args, align 8
  store <2 x i64> %numbers, ptr %payload, align 8
  store i64 %size, ptr %used
  ret i32 0
}}

define void @hops_main(ptr %payload, i64 %size, ptr %world) {{
  %number = load i64, ptr %payload
  %sum_at = getelementptr %world, ptr %world, i32 0, i32 4
  %sum = load i64, ptr %sum_at
  %added = add i64 %sum, %number
  store i64 %added, ptr %sum_at
  %left_at = getelementptr i64, ptr %payload, i64 1
  %left = load i64, ptr %left_at
  %is_last = icmp eq i64 %left, 0
  br i1 %is_last, label %end, label %on
on:
  %args = alloca [2 x i64], align 8
  store i64 %number, ptr %args
  %less = sub i64 %left, 1
  %less_at = getelementptr i64, ptr %args, i64 1
  store i64 %less, ptr %less_at
  %self = alloca ptr
  %message = alloca %message, align 8
  %context = load ptr, ptr %world
  ; The parameters go in two registers: the name, and two zeroes.
  %registered = call i8 @ucp_register_ifunc(ptr %context, ptr @name, i64 0, ptr %self)
  %handle = load ptr, ptr %self
  %made = call i8 @ucp_ifunc_msg_create(ptr %handle, ptr %args, i64 16, ptr %message)
  %ep_at = getelementptr %world, ptr %world, i32 0, i32 1
  %ep = load ptr, ptr %ep_at
  %key_at = getelementptr %world, ptr %world, i32 0, i32 2
  %key = load ptr, ptr %key_at
  %remote_at = getelementptr %world, ptr %world, i32 0, i32 3
  %remote = load i64, ptr %remote_at
  %sent = call i8 @ucp_ifunc_send_nbix(ptr %ep, ptr byval(%message) align 8 %message, i64 %remote, ptr %key)
  call void @ucp_ifunc_msg_free(ptr byval(%message) align 8 %message)
  %bad = or i8 %registered, %made
  %worse = or i8 %bad, %sent
  %failed_at = getelementptr %world, ptr %world, i32 0, i32 5
  %failed = sext i8 %worse to i64
  store i64 %failed, ptr %failed_at
  br label %end
end:
  ret void
}}
"""


class World(c.Structure):
    """The target_args of the function."""

    _fields_ = [
        ("context", c.c_void_p),
        ("ep", c.c_void_p),
        ("key", c.c_void_p),
        ("remote", c.c_uint64),
        ("sum", c.c_uint64),
        ("failed", c.c_int64),
    ]


class Parameters(c.Structure):
    _fields_ = [("name", c.c_char_p), ("pure", c.c_int), ("llvm_bc", c.c_int)]


class Bitcode(c.Structure):
    _fields_ = [("triple", c.c_char_p), ("bc", c.c_char_p), ("size", c.c_uint32)]


class Message(c.Structure):
    _fields_ = [("ifunc", c.c_void_p), ("frame", c.c_void_p), ("frame_size", c.c_size_t)]


class ContextParameters(c.Structure):
    """The start of `ucp_params_t`. The rest is not read."""

    _fields_ = [("mask", c.c_uint64), ("features", c.c_uint64), ("rest", c.c_uint8 * 128)]


class MapParameters(c.Structure):
    """The start of `ucp_mem_map_params_t`."""

    _fields_ = [
        ("mask", c.c_uint64),
        ("address", c.c_void_p),
        ("length", c.c_size_t),
        ("flags", c.c_uint),
        ("rest", c.c_uint8 * 64),
    ]


class Addressed(c.Structure):
    """The start of `ucp_mem_attr_t` and of `ucp_ep_params_t`."""

    _fields_ = [("mask", c.c_uint64), ("address", c.c_void_p), ("rest", c.c_uint8 * 256)]


class Zeroes(c.Structure):
    """Parameters without any set field."""

    _fields_ = [("all", c.c_uint8 * 256)]


ucp = c.CDLL("libucp.so.0")
farjump = c.CDLL(sys.argv[1])
# Addresses are longer than a C int.
for name in ("ucp_put_nbx", "ucp_worker_flush_nbx"):
    getattr(ucp, name).restype = c.c_void_p
farjump.farjump_last_error.restype = c.c_char_p
for name in ("farjump_ucp3_register_ifunc_im", "farjump_ucp3_poll_ifunc", "farjump_ucp_ifunc_msg_create"):
    getattr(farjump, name).restype = c.c_byte
farjump.farjump_ucp_ifunc_send_nbix.restype = c.c_byte


def ok(status, what):
    status = c.c_byte(status).value
    if status not in (UCS_OK, UCS_INPROGRESS):
        raise SystemExit(f"{what}: {status}: {farjump.farjump_last_error().decode()}")
    return status


class Peer:
    """A context, a worker, and a slot that the other process writes."""

    def __init__(self, stream):
        config, self.context, self.worker = c.c_void_p(), c.c_void_p(), c.c_void_p()
        ok(ucp.ucp_config_read(None, None, c.byref(config)), "ucp_config_read")
        params = ContextParameters(1, UCP_FEATURE_RMA)
        # The header's `ucp_init` calls this with the version of the interface.
        ok(ucp.ucp_init_version(1, 13, c.byref(params), config, c.byref(self.context)), "ucp_init")
        ucp.ucp_config_release(config)
        ok(ucp.ucp_worker_create(self.context, c.byref(Zeroes()), c.byref(self.worker)), "ucp_worker_create")
        memory = c.c_void_p()
        wanted = MapParameters(2 | 4, None, SLOT, 2)
        ok(ucp.ucp_mem_map(self.context, c.byref(wanted), c.byref(memory)), "ucp_mem_map")
        attributes = Addressed(1)
        ok(ucp.ucp_mem_query(memory, c.byref(attributes)), "ucp_mem_query")
        self.slot = attributes.address
        c.memset(self.slot, 0, SLOT)
        address, length = c.c_void_p(), c.c_size_t()
        ok(ucp.ucp_worker_get_address(self.worker, c.byref(address), c.byref(length)), "ucp_worker_get_address")
        key, key_length = c.c_void_p(), c.c_size_t()
        ok(ucp.ucp_rkey_pack(self.context, memory, c.byref(key), c.byref(key_length)), "ucp_rkey_pack")
        theirs = self.swap(stream, c.string_at(address, length.value))
        their_key = self.swap(stream, c.string_at(key, key_length.value))
        self.remote = int.from_bytes(self.swap(stream, self.slot.to_bytes(8, "little")), "little")
        self.ep, self.key = c.c_void_p(), c.c_void_p()
        params = Addressed(1, c.cast(c.create_string_buffer(theirs, len(theirs)), c.c_void_p))
        ok(ucp.ucp_ep_create(self.worker, c.byref(params), c.byref(self.ep)), "ucp_ep_create")
        ok(ucp.ucp_ep_rkey_unpack(self.ep, their_key, c.byref(self.key)), "ucp_ep_rkey_unpack")
        self.world = World(self.context, self.ep, self.key, self.remote)

    @staticmethod
    def swap(stream, mine):
        stream.sendall(len(mine).to_bytes(8, "little") + mine)
        whole = b""
        while len(whole) < 8 or len(whole) < 8 + int.from_bytes(whole[:8], "little"):
            # Not more than this message: the next one may follow.
            length = int.from_bytes(whole[:8], "little") + 8 if len(whole) >= 8 else 8
            part = stream.recv(length - len(whole))
            assert part, "the peer is gone"
            whole += part
        return whole[8:]

    def poll_until(self, sum_):
        end = time.monotonic() + PATIENCE
        while self.world.sum < sum_:
            assert time.monotonic() < end, "the function did not come"
            status = farjump.farjump_ucp3_poll_ifunc(
                self.context, c.c_void_p(self.slot), c.c_size_t(SLOT), c.byref(self.world), self.worker
            )
            if status != UCS_ERR_NO_MESSAGE:
                ok(status, "ucp_poll_ifunc")
            assert self.world.failed in (UCS_OK, UCS_INPROGRESS), self.world.failed

    def send(self, number, hops):
        llvm.initialize_native_target()
        module = llvm.parse_assembly(HOPS)
        module.data_layout = str(llvm.Target.from_default_triple().create_target_machine().target_data)
        module.verify()
        bitcode = module.as_bitcode()
        given = Bitcode(TRIPLE.encode(), bitcode, len(bitcode))
        ifunc = c.c_void_p()
        ok(
            farjump.farjump_ucp3_register_ifunc_im(
                self.context, Parameters(b"hops", 0, 1), c.byref(given), 1, None, 0, c.byref(ifunc)
            ),
            "ucp_register_ifunc_im",
        )
        args, message = (c.c_uint64 * 2)(number, hops), Message()
        made = farjump.farjump_ucp_ifunc_msg_create(ifunc, args, c.c_size_t(16), c.byref(message))
        ok(made, "ucp_ifunc_msg_create")
        sent = farjump.farjump_ucp_ifunc_send_nbix(self.ep, message, c.c_uint64(self.remote), self.key)
        ok(sent, "ucp_ifunc_send_nbix")
        farjump.farjump_ucp_ifunc_msg_free(message)
        return ifunc


def main():
    own, other = socket.socketpair()
    for end in (own, other):
        end.settimeout(PATIENCE)
    child = os.fork()
    stream = other if child == 0 else own
    peer = Peer(stream)
    # There and back ten times: each process runs the function ten times.
    if child == 0:
        peer.poll_until(70)
    else:
        ifunc = peer.send(7, 19)
        peer.poll_until(70)
        farjump.farjump_ucp_deregister_ifunc(peer.context, ifunc)
    Peer.swap(stream, b"done")
    # In one write: the other process writes to the same pipe.
    os.write(1, f"{'target' if child == 0 else 'source'} {peer.world.sum}\n".encode())
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


main()

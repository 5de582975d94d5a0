//! sum - adds up an array of 32-bit numbers, and replies a 64-bit sum.
//!
//!     zig build-obj sum.zig -O ReleaseSmall -fPIC -fstrip -femit-bin=sum.o -femit-llvm-bc=sum.bc
//!     farjump build sum.o sum.bc --bitcode -o libsum.so

extern fn farjump_reply(bytes: *const anyopaque, len: usize) c_int;

export fn sum_main(payload: [*]align(4) const u8, len: usize, _: ?*anyopaque) void {
    const numbers: [*]const u32 = @ptrCast(payload);
    var total: u64 = 0;
    for (numbers[0 .. len / 4]) |number| total += number;
    _ = farjump_reply(&total, @sizeOf(u64));
}

// The payload is the arguments.
export const sum_copy_args: u32 linksection(".farjump.copy_args") = 1;

export fn sum_payload_get_max_size(_: ?*const anyopaque, len: usize) usize {
    return len;
}

export fn sum_payload_init(payload: [*]u8, space: usize, args: [*]const u8, len: usize) c_int {
    if (space < len) return -1;
    @memcpy(payload[0..len], args[0..len]);
    return 0;
}

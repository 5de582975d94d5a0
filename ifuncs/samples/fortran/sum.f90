! sum - adds up an array of 32-bit numbers, and replies a 64-bit sum.
!
!     gfortran -O2 -fPIC -c sum.f90
!     farjump build sum.o -o libsum.so
!
! With flang bitcode is written too:
!
!     flang-new-19 -O2 -fPIC -c -emit-llvm sum.f90 -o sum.bc
!     farjump build sum.o sum.bc --bitcode -o libsum.so
module farjump
  use, intrinsic :: iso_c_binding
  implicit none

  interface
    integer(c_int) function farjump_reply(bytes, length) bind(c)
      import
      integer(c_int64_t), intent(in) :: bytes
      integer(c_size_t), value :: length
    end function
  end interface

contains

  subroutine sum_main(payload, length, target_args) bind(c)
    integer(c_size_t), value :: length
    integer(c_int32_t), intent(in) :: payload(length / 4)
    type(c_ptr), value :: target_args
    integer(c_int64_t) :: total
    integer(c_size_t) :: i
    integer(c_int) :: replied

    total = 0
    do i = 1, length / 4
      ! Fortran has no unsigned numbers.
      total = total + iand(int(payload(i), c_int64_t), int(z'ffffffff', c_int64_t))
    end do
    replied = farjump_reply(total, 8_c_size_t)
  end subroutine

  ! The payload is the arguments.
  integer(c_size_t) function sum_payload_get_max_size(args, length) bind(c)
    type(c_ptr), value :: args
    integer(c_size_t), value :: length
    sum_payload_get_max_size = length
  end function

  integer(c_int) function sum_payload_init(payload, space, args, length) bind(c)
    integer(c_size_t), value :: space, length
    integer(c_int8_t), intent(out) :: payload(length)
    integer(c_int8_t), intent(in) :: args(length)
    sum_payload_init = -1
    if (space < length) return
    payload = args
    sum_payload_init = 0
  end function
end module

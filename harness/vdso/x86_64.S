/* What a lied-to process executes instead of the vDSO's clock functions (x86-64, System V ABI).

   Position-independent; uses only registers that a call may change.  It is copied over
   clock_gettime; the entries of gettimeofday and time become jumps to `day` and `second`.
   machines.py holds the assembled bytes, and a test assembles this file and compares.

   A block of four numbers for each line of time follows the code (nanoseconds, and a rate in
   units of 2^-32):  origin, jump, rate, half a strobe's period (0: no strobe).
   What is read is  origin + elapsed * rate + jump,  with elapsed = true - origin;
   in every second half period of a strobe the jump is left out.

   All names are local (.L): a global one would leave a relocation instead of a number. */

    .text
.Lclock:                            /* int clock_gettime(clockid_t rdi, struct timespec *rsi) */
    endbr64
    movl    $228, %eax              /* the real one */
    syscall
    testl   %eax, %eax
    jnz     .Ldone
    cmpl    $11, %edi               /* dynamic and CPU clocks are negative or above */
    ja      .Ldone
    leaq    .Lblocks(%rip), %r8
    movl    %edi, %ecx
    movzbl  .Lwhich-.Lblocks(%r8,%rcx), %ecx
    testb   %cl, %cl
    js      .Ldone                  /* a clock that stays true */
    addq    %rcx, %r8
    imulq   $1000000000, (%rsi), %r9
    addq    8(%rsi), %r9
.Lfirst:                            /* from here on a thread knows some of its parameters */
    subq    (%r8), %r9              /* r9: elapsed */
    movq    %r9, %rax
    imulq   16(%r8)                 /* 128 bits, signed */
    shrdq   $32, %rdx, %rax
    addq    (%r8), %rax
    movq    %rax, %r10              /* r10: what is read, the jump to come */
    movq    24(%r8), %rcx
    testq   %rcx, %rcx
    jz      .Llast
    movq    %r9, %rax
    cqto
    idivq   %rcx
    testb   $1, %al
    jnz     .Lsplit
.Llast:                             /* and after this all that it needs */
    addq    8(%r8), %r10
.Lsplit:                            /* into seconds and nanoseconds, 0 <= ns < 10^9 */
    movq    %r10, %rax
    cqto
    movl    $1000000000, %ecx
    idivq   %rcx
    testq   %rdx, %rdx
    jns     .Lstore
    addq    %rcx, %rdx
    decq    %rax
.Lstore:
    movq    %rax, (%rsi)
    movq    %rdx, 8(%rsi)
    xorl    %eax, %eax
.Ldone:
    ret

.Lday:                              /* int gettimeofday(struct timeval *rdi, struct timezone *rsi) */
    testq   %rsi, %rsi
    jz      1f
    movq    $0, (%rsi)              /* the kernel's time zone: nobody sets it */
1:  testq   %rdi, %rdi
    jz      2f
    movq    %rdi, %rsi              /* a timeval is a timespec, but for its last division */
    pushq   %rdi
    xorl    %edi, %edi
    call    .Lclock
    popq    %rdi
    movq    8(%rdi), %rax
    xorl    %edx, %edx
    movl    $1000, %ecx
    divq    %rcx
    movq    %rax, 8(%rdi)
2:  xorl    %eax, %eax
    ret

.Lsecond:                           /* time_t time(time_t *rdi) */
    pushq   %rdi
    subq    $16, %rsp
    xorl    %edi, %edi
    movq    %rsp, %rsi
    call    .Lclock
    movq    (%rsp), %rax
    addq    $16, %rsp
    popq    %rdi
    testq   %rdi, %rdi
    jz      3f
    movq    %rax, (%rdi)
3:  ret

.Lwhich:                            /* clock id -> its block, 255: stays true */
    .byte   0                       /* REALTIME */
    .byte   64                      /* MONOTONIC */
    .byte   255, 255                /* the CPU time of the process and of the thread */
    .byte   255                     /* MONOTONIC_RAW */
    .byte   0                       /* REALTIME_COARSE */
    .byte   64                      /* MONOTONIC_COARSE */
    .byte   96                      /* BOOTTIME */
    .byte   0                       /* REALTIME_ALARM */
    .byte   96                      /* BOOTTIME_ALARM */
    .byte   255                     /* never given out */
    .byte   32                      /* TAI */
    .balign 8
.Lblocks:
    .skip   4 * 32

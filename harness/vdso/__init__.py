"""Lying to single processes about the time: unmodified, already running, static ones included.

Programs read clocks by calling code in a page that the kernel maps into each of them, the vDSO.
Go programs do so without any C library.  Here that code is exchanged in one process at a time,
through /proc/PID/mem, while the process is held still: 1-3 ms, no ptrace, no preload, nothing of
the machine's own clock is touched, and no other process sees anything.

::

    machines  the code that lies, one entry an architecture (source: x86_64.S)
    image     the true vDSO, and one that lies with given parameters
    memory    another process's vDSO, read and written
    halt      holding a process still outside of its clock functions
    trial     running the code that was read back from a process
    clocks    keeping all processes of a place lied to

What is lied about: the wall clock (CLOCK_REALTIME, _COARSE, _ALARM, TAI, gettimeofday, time) and
the monotonic clock (CLOCK_MONOTONIC, _COARSE, BOOTTIME and its _ALARM).  CLOCK_MONOTONIC_RAW and
the CPU clocks stay true.

What the kernel does by itself keeps to the true clock.  A sleep or a time-out of a given length
(nanosleep, epoll, poll, a futex's relative time-out) lasts its real length.  One that is set to a
point in time (clock_nanosleep with TIMER_ABSTIME, timerfd, pthread_cond_timedwait) is compared with
the true clock, so a program that computes that point from a clock that lies wakes too late or at
once: Python's `time.sleep` and the time-outs of its locks are of that kind (`harness.bell` is not).
Programs that look at the clock again after waking (Go's timers, leases, caches) follow the
lie; with a frozen clock such a program may sleep again and again, and with a clock at a tenth of
the speed it waits ten times as long.  File times, and what the kernel stamps, are true.

A monotonic clock that is set back, or that returns to the truth after it ran ahead, does what no
kernel does: programs that are entitled to rely on it may stop, loop or crash.  That is the fault's
doing: the end of a lie is the truth at once.

Holding a process still is a stop like any other: system calls that a stop interrupts (epoll_wait,
socket calls with a time-out) may return EINTR, and its parent may be told.

Not reached: a program that makes the raw system call, or reads the processor's counter itself; one
under a seccomp filter that forbids the system call clock_gettime gets that filter's answer.
"""

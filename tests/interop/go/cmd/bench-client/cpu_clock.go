package main

import (
	"syscall"
	"unsafe"
)

// cpuClock reads the CPU-time clock of a process, all its threads, in nanoseconds; 0 when it is gone.
// The clock's number is what clock_getcpuclockid(3) makes: the inverted id, and 2 for scheduled time.
func cpuClock(pid int) int64 {
	var at syscall.Timespec
	clock := uintptr(^pid<<3 | 2)
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		return 0
	}
	return at.Nano()
}

/*
 * Assertions that stay on in release: they guard our own invariants and abort with a message.
 * Nothing that a peer, a file or an operator can send may reach one (design: errors, three kinds).
 */
#ifndef TRIBUTARY_BASE_CHECK_H
#define TRIBUTARY_BASE_CHECK_H

/* Print "FILE:LINE: check failed: WHAT" to stderr and abort. Never returns. */
__attribute__((noreturn, cold)) void check_failed(const char *file, int line, const char *what);

#define check(condition)                                                                           \
    (__builtin_expect(!!(condition), 1) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

#endif

/* Calls on sockets that Swift's Glibc module lacks or makes awkward (socket addresses, ioctl).
   All return -1 with errno set on failure unless said otherwise; all new descriptors are
   close-on-exec. Socket paths are given with their length; one that begins with a zero byte is an
   abstract address. */
#ifndef SPOOLGATE_CLINUX_SOCKET_H
#define SPOOLGATE_CLINUX_SOCKET_H

#include <stddef.h>
#include <stdint.h>

/* accept4(2) with SOCK_CLOEXEC. */
int spoolgate_accept(int listener);

/* socket(2): a stream socket of the Unix domain. */
int spoolgate_unix_socket(void);

/* bind(2) of a Unix socket; ENAMETOOLONG if the path does not fit. */
int spoolgate_unix_bind(int socket, const char *path, size_t length);

/* connect(2) of a Unix socket, without waiting for room in the backlog. */
int spoolgate_unix_probe(int socket, const char *path, size_t length);

/* sendto(2) of one datagram to a Unix socket. */
int spoolgate_unix_send(const char *path, size_t length, const void *bytes, size_t count);

/* Resolves host and service and binds a TCP socket to the first address that can be had.
   Returns the socket; on failure -1, with *resolution the getaddrinfo(3) error or 0. */
int spoolgate_tcp_bind(const char *host, const char *service, int *resolution);

/* Whether the descriptor is a listening stream socket: 1, 0, or -1. */
int spoolgate_is_listening(int socket);

/* SO_RCVTIMEO (option 'r') or SO_SNDTIMEO (option 's'), in milliseconds. */
int spoolgate_set_timeout(int socket, char option, int64_t milliseconds);

/* TCP_NODELAY; fails harmlessly on other sockets. */
int spoolgate_set_nodelay(int socket);

/* FIONBIO: whether calls on the socket fail with EAGAIN instead of waiting (1) or wait (0). */
int spoolgate_set_nonblocking(int socket, int on);

/* FIONREAD: bytes that can be read without waiting. */
int spoolgate_readable_bytes(int socket);

/* poll(2) without waiting: 1 if the peer has closed its side (with `both`: the whole connection,
   or there was an error), 0 if not. */
int spoolgate_is_hung_up(int socket, int both);

/* Waits until there is something to read, the end included: 1; 0 when the time is over. */
int spoolgate_wait_readable(int socket, int milliseconds);

/* fcntl(2) F_SETFD FD_CLOEXEC. */
int spoolgate_set_cloexec(int descriptor);

#endif

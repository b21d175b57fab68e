/* GNU calls and constants that Swift's Glibc module lacks, as plain prototypes. Only the .c files define _GNU_SOURCE:
   defining it here would split the C types that Swift imports. */
#ifndef SPOOLGATE_CLINUX_H
#define SPOOLGATE_CLINUX_H

#include <stddef.h>
#include <stdint.h>

/* Files. */

/* openat(2) with O_TMPFILE | O_RDWR | O_CLOEXEC: an unnamed file on the file system of `directory`/`path`. -1 with
   EOPNOTSUPP, EISDIR or ENOENT if the file system does not support it. */
int spoolgate_open_nameless(int directory, const char *path, unsigned mode);

/* memfd_create(2), close-on-exec: an empty file in memory; `name` is only informative. */
int spoolgate_memory_file(const char *name);

/* sync_file_range(2) with only SYNC_FILE_RANGE_WRITE: starts writing. A flag that waits would consume an error that
   fdatasync(2) must report. */
void spoolgate_begin_write_back(int descriptor, int64_t position, int64_t count);

/* syncfs(2): makes every file of the file system that has `descriptor` durable. 0 or -1. */
int spoolgate_sync_file_system(int descriptor);

/* copy_file_range(2): copies between files, sharing storage if the file system can. Returns the number of bytes copied,
   0 at the end of the source, -1 on error. */
int64_t spoolgate_copy(int source, int64_t from, int target, int64_t to, int64_t count);

/* fcntl(2) F_OFD_SETLK: an exclusive lock on all content, owned by the open file description. 0: locked; 1: another one
   holds the lock; -1: error. */
int spoolgate_try_lock(int descriptor);

/* fcntl(2) F_OFD_GETLK. 1: another open file description holds a lock; 0: none does; -1: error. */
int spoolgate_is_locked(int descriptor);

/* Sets or clears a mark on a file. Any number of open file descriptions can have one, independently of the lock. 0 or
   -1. */
int spoolgate_set_mark(int descriptor, int on);

/* 1: another open file description has a mark; 0: none has; -1: error. */
int spoolgate_is_marked(int descriptor);

/* Child processes. */

/* posix_spawn(3): starts `path` in its own process group, with default signals and none blocked, /dev/null as standard
   input, `output` and `errors` as the other two, and no other descriptor. 0 and *child, or an error number. */
int spoolgate_spawn(const char *path, char *const arguments[], char *const environment[],
                    int output, int errors, int32_t *child);

/* pipe2(2): both ends close-on-exec. 0 or -1. */
int spoolgate_pipe(int ends[2]);

/* fcntl(2) F_SETPIPE_SZ: enlarges a pipe to at least `size` bytes. Returns its size; -1 if it is not a pipe or the size
   is not allowed. */
int spoolgate_widen_pipe(int pipe, int size);

/* pidfd_open(2): becomes readable when the process ends. -1 if the process does not exist. */
int spoolgate_open_process(int32_t process);

/* waitpid(2) for a process that has ended or will end soon: 0 to 255 is its exit status, 1000 + n is the signal that
   ended it, -1 an error. */
int spoolgate_reap(int32_t process);

/* Socket calls that Swift's Glibc module lacks or makes awkward (socket addresses, ioctl). All return -1 with errno on
   failure unless stated otherwise; all new descriptors are close-on-exec. Socket paths have an explicit length; one
   that begins with a zero byte is an abstract address. */

/* accept4(2) with SOCK_CLOEXEC. */
int spoolgate_accept(int listener);

/* socket(2): a Unix stream socket. */
int spoolgate_unix_socket(void);

/* bind(2) of a Unix socket; ENAMETOOLONG if the path does not fit. */
int spoolgate_unix_bind(int socket, const char *path, size_t length);

/* connect(2) of a Unix socket, without waiting for space in the backlog. */
int spoolgate_unix_probe(int socket, const char *path, size_t length);

/* sendto(2) of one datagram to a Unix socket. */
int spoolgate_unix_send(const char *path, size_t length, const void *bytes, size_t count);

/* Resolves host and service, and binds a TCP socket to the first available address. Returns the socket; on failure -1,
   with *resolution set to the getaddrinfo(3) error or 0. */
int spoolgate_tcp_bind(const char *host, const char *service, int *resolution);

/* Whether the descriptor is a listening stream socket: 1, 0, or -1. */
int spoolgate_is_listening(int socket);

/* poll(2) without waiting: 1 if the peer has closed its side (with `both`: the whole connection, or on an error),
   otherwise 0. */
int spoolgate_is_hung_up(int socket, int both);

/* connect(2) to no address: the peer of a TCP connection gets an error after the bytes that it has received. -1 with
   any other socket. */
int spoolgate_reset(int socket);

/* epoll_create1(2). */
int spoolgate_epoll(void);

/* epoll_ctl(2): watches `number` for one event, or with `always` for all. An event carries `token`. 0 or -1. */
int spoolgate_epoll_watch(int epoll, int number, uint64_t token, int always);

/* epoll_wait(2) without a timeout: 1 and *token for an event, with *hung_up if the peer has closed its side; 0 after a
   signal; -1. */
int spoolgate_epoll_wait(int epoll, uint64_t *token, int *hung_up);

/* eventfd(2): a count of zero, close-on-exec, nonblocking. */
int spoolgate_event(void);

/* poll(2): waits until `socket` is readable or at its end, or `event` is readable. 1: the event, also if both are; 2:
   the socket; 0: timeout; -1. Never EINTR: a signal returns 1. */
int spoolgate_wait_for_either(int socket, int event, int milliseconds);

/* recvmsg(2) into two buffers, the second after the first is full; with `waits` it waits for the first byte. Returns
   the number of bytes, 0 at the end of the connection, or -1; never EINTR. */
int64_t spoolgate_receive(int socket, void *first, size_t first_count, void *second,
                          size_t second_count, int waits);

/* sendmsg(2) of all of both parts, without SIGPIPE. 0 or -1; never EINTR. */
int spoolgate_send(int socket, const void *first, size_t first_count, const void *second,
                   size_t second_count);

/* sendmsg(2) of a few bytes with a descriptor (SCM_RIGHTS) to a Unix socket, without SIGPIPE. The receiver gets the
   descriptor with the first byte. 0 or -1; never EINTR. */
int spoolgate_send_descriptor(int socket, const void *bytes, size_t count, int descriptor);

/* Threads and the process. */

/* pthread_setname_np(3) for the calling thread; truncates a name to 15 bytes. */
void spoolgate_name_thread(const char *name);

/* Tunes malloc(3) for many threads with little memory each: few arenas, and freed buffers of up to a megabyte are kept
   for reuse instead of being mapped anew. */
void spoolgate_tune_memory(void);

/* Releases the heap's free pages anywhere to the system; free(3) does so only at an arena's end. */
void spoolgate_release_heap(void);

/* Releases the pages of the calling thread's stack below its current frame to the system; otherwise pages touched by
   one deep call stay resident. Not for the main thread. */
void spoolgate_release_stack(void);

/* Terminals. */

/* wcwidth(3) of a Unicode scalar in any locale of the process: 0 to 2; 0 if it is not printable. */
int spoolgate_columns(uint32_t scalar);

/* The build identity that deploy/identify.sh writes into a linked program, such as "82c1e4e"; empty if none was written.
   Valid for the lifetime of the process. */
const char *spoolgate_build(void);

#endif

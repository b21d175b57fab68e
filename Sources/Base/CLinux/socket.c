#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

int spoolgate_accept(int listener) {
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

int spoolgate_unix_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* The address's length, or 0 if the path does not fit. */
static socklen_t unix_address(struct sockaddr_un *address, const char *path, size_t length) {
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (length == 0 || length >= sizeof(address->sun_path)) {
        errno = length == 0 ? EINVAL : ENAMETOOLONG;
        return 0;
    }
    memcpy(address->sun_path, path, length);
    /* The terminating zero belongs to a path but not to an abstract name. */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (path[0] != 0));
}

int spoolgate_unix_bind(int socket, const char *path, size_t length) {
    struct sockaddr_un address;
    socklen_t size = unix_address(&address, path, length);
    return size == 0 ? -1 : bind(socket, (struct sockaddr *)&address, size);
}

int spoolgate_unix_probe(int socket, const char *path, size_t length) {
    struct sockaddr_un address;
    socklen_t size = unix_address(&address, path, length);
    int flags;

    if (size == 0 || (flags = fcntl(socket, F_GETFL)) < 0
        || fcntl(socket, F_SETFL, flags | O_NONBLOCK) < 0) {
        return -1;
    }
    return connect(socket, (struct sockaddr *)&address, size);
}

int spoolgate_unix_send(const char *path, size_t length, const void *bytes, size_t count) {
    struct sockaddr_un address;
    socklen_t size = unix_address(&address, path, length);
    int failure, number;
    ssize_t sent;

    if (size == 0 || (number = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0) {
        return -1;
    }
    sent = sendto(number, bytes, count, MSG_NOSIGNAL, (struct sockaddr *)&address, size);
    failure = errno;
    close(number);
    errno = failure;
    return sent < 0 ? -1 : 0;
}

int spoolgate_tcp_bind(const char *host, const char *service, int *resolution) {
    struct addrinfo hints, *found, *each;
    int failure = EADDRNOTAVAIL, number = -1, on = 1;

    memset(&hints, 0, sizeof(hints));
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    *resolution = getaddrinfo(host, service, &hints, &found);
    if (*resolution != 0) {
        return -1;
    }
    for (each = found; each != NULL; each = each->ai_next) {
        number = socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
        if (number < 0) {
            failure = errno;
            continue;
        }
        if (setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0
            && bind(number, each->ai_addr, each->ai_addrlen) == 0) {
            break;
        }
        failure = errno;
        close(number);
        number = -1;
    }
    freeaddrinfo(found);
    errno = failure;
    return number;
}

int spoolgate_is_listening(int socket) {
    int type = 0, listening = 0;
    socklen_t size = sizeof(int);

    if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) < 0
        || getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0) {
        return -1;
    }
    return type == SOCK_STREAM && listening;
}

int spoolgate_is_hung_up(int socket, int both) {
    struct pollfd entry = {.fd = socket, .events = POLLRDHUP};

    if (poll(&entry, 1, 0) < 0) {
        return -1;
    }
    return (entry.revents & (POLLHUP | POLLERR | POLLNVAL | (both ? 0 : POLLRDHUP))) != 0;
}

int spoolgate_reset(int socket) {
    struct sockaddr address = {.sa_family = AF_UNSPEC};

    return connect(socket, &address, sizeof(address));
}

int spoolgate_event(void) {
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int spoolgate_wait_for_either(int socket, int event, int milliseconds) {
    struct pollfd entries[2] = {{.fd = socket, .events = POLLIN}, {.fd = event, .events = POLLIN}};
    int count = poll(entries, 2, milliseconds);

    if (count <= 0) {
        return count < 0 && errno == EINTR ? 1 : count;
    }
    return entries[1].revents ? 1 : 2;
}

int64_t spoolgate_receive(int socket, void *first, size_t first_count, void *second,
                          size_t second_count, int waits) {
    struct iovec parts[2] = {{first, first_count}, {second, second_count}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t count;

    do {
        count = recvmsg(socket, &message, waits ? 0 : MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    return count;
}

int spoolgate_send(int socket, const void *first, size_t first_count, const void *second,
                   size_t second_count) {
    struct iovec parts[2] = {{(void *) first, first_count}, {(void *) second, second_count}};

    while (parts[0].iov_len + parts[1].iov_len > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
        int i;

        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return -1;
        }
        for (i = 0; i < 2; i++) {
            size_t step = (size_t) sent < parts[i].iov_len ? (size_t) sent : parts[i].iov_len;

            parts[i].iov_base = (char *) parts[i].iov_base + step;
            parts[i].iov_len -= step;
            sent -= (ssize_t) step;
        }
    }
    return 0;
}

int spoolgate_send_descriptor(int socket, const void *bytes, size_t count, int descriptor) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {(void *) bytes, count};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t sent;

    memset(&control, 0, sizeof(control));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &descriptor, sizeof(int));
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return -1;
    }
    return spoolgate_send(socket, (const char *) bytes + sent, count - (size_t) sent, NULL, 0);
}

int spoolgate_epoll(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

int spoolgate_epoll_watch(int epoll, int number, uint64_t token, int always) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (always ? 0 : EPOLLONESHOT)};

    event.data.u64 = token;
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, number, &event) == 0) {
        return 0;
    }
    return errno == ENOENT ? epoll_ctl(epoll, EPOLL_CTL_ADD, number, &event) : -1;
}

int spoolgate_epoll_wait(int epoll, uint64_t *token, int *hung_up) {
    struct epoll_event event;
    int count = epoll_wait(epoll, &event, 1, -1);

    if (count < 0) {
        return errno == EINTR ? 0 : -1;
    }
    *token = event.data.u64;
    *hung_up = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    return count;
}

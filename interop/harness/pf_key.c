/* Loaded into OpenIKED's iked, this stands in for the kernel's PF_KEY socket (RFC 2367), which many kernels lack.
 *
 * It is a datagram socket that sends to itself, so that the answer lies in it when writev() returns: iked waits for one
 * millisecond, in which another process might not run. Each request is appended to the file named by PF_KEY_LOG. What
 * others in the network namespace send to the socket looks to iked as if it came from the kernel. */

#include <fcntl.h>
#include <linux/pfkeyv2.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* An abstract address: nothing of it stays, and iked's processes reach it in whatever root directory they are. */
static const struct sockaddr_un ADDRESS = {AF_UNIX, "\0pf_key"};
static const socklen_t ADDRESS_LENGTH = offsetof(struct sockaddr_un, sun_path) + sizeof "\0pf_key" - 1;

static int record = -1;

__attribute__((constructor)) static void open_record(void) {
    const char *name = getenv("PF_KEY_LOG");
    if (name) record = open(name, O_WRONLY | O_APPEND | O_CREAT, 0600);
}

int socket(int family, int type, int protocol) {
    if (family != PF_KEY) return syscall(SYS_socket, family, type, protocol);
    int made = syscall(SYS_socket, AF_UNIX, SOCK_DGRAM, 0);
    if (made >= 0 && bind(made, (const struct sockaddr *)&ADDRESS, ADDRESS_LENGTH) != 0) {
        close(made);
        return -1;
    }
    return made;
}

static int is_pf_key(int file) {
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    return getsockname(file, (struct sockaddr *)&name, &length) == 0 && length == ADDRESS_LENGTH &&
           memcmp(&name, &ADDRESS, length) == 0;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    ssize_t written = syscall(SYS_writev, is_pf_key(file) ? record : file, parts, count);
    if (written < (ssize_t)sizeof(struct sadb_msg) || !is_pf_key(file)) return written;
    /* iked has the header in the first part. */
    struct {
        struct sadb_msg header;
        struct sadb_sa sa;
    } answer = {.header = *(struct sadb_msg *)parts[0].iov_base};
    size_t length = sizeof answer.header;
    if (answer.header.sadb_msg_type == SADB_GETSPI) {
        length = sizeof answer;
        answer.sa.sadb_sa_len = sizeof answer.sa / 8;
        answer.sa.sadb_sa_exttype = SADB_EXT_SA;
        if (getrandom(&answer.sa.sadb_sa_spi, 4, 0) != 4) return -1;
        /* The first 256 are reserved (RFC 4303 section 2.1). */
        *(unsigned char *)&answer.sa.sadb_sa_spi |= 1;
    }
    answer.header.sadb_msg_len = length / 8;
    sendto(file, &answer, length, 0, (const struct sockaddr *)&ADDRESS, ADDRESS_LENGTH);
    return written;
}

/* Without IPsec in the kernel, no socket is exempt from its policies, and none takes ESP in UDP. */
int setsockopt(int file, int level, int name, const void *value, socklen_t length) {
    if ((level == IPPROTO_IP && name == IP_IPSEC_POLICY) || (level == IPPROTO_IPV6 && name == IPV6_IPSEC_POLICY) ||
        (level == IPPROTO_UDP && name == UDP_ENCAP))
        return 0;
    return syscall(SYS_setsockopt, file, level, name, value, length);
}

/* A user namespace may forbid it. */
int setgroups(size_t count, const gid_t *list) {
    (void)count;
    (void)list;
    return 0;
}

# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The C twin of `_sockets_pure`: it releases the GIL once for all sockets."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.errno cimport errno

cdef extern from *:
    """
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    #ifdef __linux__
    #include <sched.h>
    #define CURRENT_CPU() sched_getcpu()
    #else
    #define CURRENT_CPU() -1
    #endif
    """
    int MSG_NOSIGNAL
    int CURRENT_CPU() noexcept nogil
    Py_ssize_t send(int fd, const void *data, size_t size, int flags) noexcept nogil
    Py_ssize_t recv(int fd, void *data, size_t size, int flags) noexcept nogil

cdef enum:
    AT_ONCE = 256


cdef struct Job:
    int fd
    const char *data
    Py_ssize_t size
    Py_ssize_t done


def current_cpu():
    return CURRENT_CPU()


def send_all(list fds not None, list frames not None):
    cdef list unsent = []
    cdef Py_ssize_t start
    for start in range(0, len(frames), AT_ONCE):
        send_some(fds, frames, start, min(<Py_ssize_t> AT_ONCE, len(frames) - start), unsent)
    return unsent


cdef int send_some(list fds, list frames, Py_ssize_t start, Py_ssize_t count, list unsent) except -1:
    cdef Job jobs[AT_ONCE]
    cdef Py_ssize_t index
    for index in range(count):
        frame = frames[start + index]
        if not isinstance(frame, bytearray):
            raise TypeError(f"a frame is a bytearray, not {type(frame)}")
        jobs[index].fd = fds[start + index]
        jobs[index].data = PyByteArray_AS_STRING(frame)
        jobs[index].size = PyByteArray_GET_SIZE(frame)
    with nogil:
        for index in range(count):
            jobs[index].done = send(jobs[index].fd, jobs[index].data, jobs[index].size, MSG_NOSIGNAL)
    for index in range(count):
        if jobs[index].done != jobs[index].size:
            unsent.append((start + index, max(jobs[index].done, 0)))
    return 0


def receive_all(list fds not None, bytearray buffer not None, Py_ssize_t most):
    cdef Job jobs[AT_ONCE]
    cdef list counts = []
    cdef char *data = PyByteArray_AS_STRING(buffer)
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(buffer), position = 0, start, count, done, index
    for start in range(0, len(fds), AT_ONCE):
        count = min(<Py_ssize_t> AT_ONCE, len(fds) - start)
        for index in range(count):
            jobs[index].fd = fds[start + index]
        with nogil:
            done = receive_some(jobs, count, data, size, most, &position)
        for index in range(done):
            counts.append(jobs[index].done)
        if done < count:
            break
    return counts


cdef Py_ssize_t receive_some(
    Job *jobs, Py_ssize_t count, char *data, Py_ssize_t size, Py_ssize_t most, Py_ssize_t *position
) noexcept nogil:
    cdef Py_ssize_t index, received
    for index in range(count):
        if position[0] + most > size:
            return index
        received = recv(jobs[index].fd, data + position[0], most, 0)
        jobs[index].done = received if received >= 0 else -errno
        if received > 0:
            position[0] += received
    return count

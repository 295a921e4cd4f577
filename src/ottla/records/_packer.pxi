"""Frames made ahead by a thread that needs no interpreter lock, included by `_lz4`: see `_lz4_pure` for what it promises.

Packings wait in a list that runs through themselves. The lock guards the list and the states; it is held for moments, and
never by somebody who wants the interpreter's. What is packed is written elsewhere first and then over the records, so
that it takes no memory of its own, and nothing at all happened if it did not become smaller.

A child of a fork has the lock and the conditions as they were at that moment, which may be for ever: it leaves them
alone. Nor are they ever destroyed, because that would wait for the thread which the child does not have.
"""

from libc.stdlib cimport free, malloc
from posix.types cimport pid_t
from posix.unistd cimport getpid

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_cond_init(pthread_cond_t *, void *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_signal(pthread_cond_t *)
    int pthread_cond_broadcast(pthread_cond_t *)

cdef enum State:
    WAITING
    BEGUN
    DONE
    WITHDRAWN


cdef struct Work:
    uint8_t *place
    Py_ssize_t size
    Py_ssize_t packed
    State state
    Work *before
    Work *behind


cdef struct Scratch:
    uint16_t table[1 << HASH_BITS]
    uint8_t *output
    Py_ssize_t room


cdef class Packer:
    cdef pthread_mutex_t lock
    cdef pthread_cond_t more
    cdef pthread_cond_t done
    cdef Work *first
    cdef Work *last
    cdef bint stopped
    cdef pid_t process

    def __cinit__(self):
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.more, NULL)
        pthread_cond_init(&self.done, NULL)
        self.process = getpid()

    def begin(self, bytearray buffer not None, Py_ssize_t start, Py_ssize_t end):
        cdef Packing packing = Packing.__new__(Packing)
        if not 0 <= start <= end <= len(buffer):
            raise ValueError(f"a buffer of {len(buffer)} bytes has no place from {start} to {end}")
        PyObject_GetBuffer(buffer, &packing.held, PyBUF_WRITABLE)
        packing.packer = self
        packing.work.place = <uint8_t *> packing.held.buf + start
        packing.work.size = end - start
        pthread_mutex_lock(&self.lock)
        self.link(&packing.work)
        pthread_cond_signal(&self.more)
        pthread_mutex_unlock(&self.lock)
        return packing

    def run(self):
        cdef Scratch scratch
        cdef Work *work
        scratch.output = NULL
        scratch.room = 0
        with nogil:
            pthread_mutex_lock(&self.lock)
            while not self.stopped:
                work = self.first
                if work is NULL:
                    pthread_cond_wait(&self.more, &self.lock)
                    continue
                self.unlink(work)
                work.state = BEGUN
                pthread_mutex_unlock(&self.lock)
                pack(work, &scratch)
                pthread_mutex_lock(&self.lock)
                work.state = DONE
                pthread_cond_broadcast(&self.done)
            pthread_mutex_unlock(&self.lock)
            free(scratch.output)

    def stop(self):
        if self.process != getpid():
            return
        pthread_mutex_lock(&self.lock)
        self.stopped = True
        pthread_cond_broadcast(&self.more)
        pthread_mutex_unlock(&self.lock)

    cdef void link(self, Work *work) noexcept nogil:
        work.before = self.last
        if self.last is NULL:
            self.first = work
        else:
            self.last.behind = work
        self.last = work

    cdef void unlink(self, Work *work) noexcept nogil:
        if work.before is NULL:
            self.first = work.behind
        else:
            work.before.behind = work.behind
        if work.behind is NULL:
            self.last = work.before
        else:
            work.behind.before = work.before

    cdef State take_back(self, Work *work) noexcept nogil:
        """What became of it; if it was not begun, it will not be."""
        cdef State state
        pthread_mutex_lock(&self.lock)
        if work.state == WAITING:
            self.unlink(work)
            work.state = WITHDRAWN
        state = work.state
        pthread_mutex_unlock(&self.lock)
        return state

    cdef void wait_for(self, Work *work) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        while work.state == BEGUN:
            pthread_cond_wait(&self.done, &self.lock)
        pthread_mutex_unlock(&self.lock)


@cython.no_gc  # it holds nothing that could hold it, and must have its packer to the end
cdef class Packing:
    cdef Packer packer
    cdef Py_buffer held
    cdef Work work

    def withdraw(self):
        return self.packer.take_back(&self.work) == WITHDRAWN

    def size(self):
        if self.packer.take_back(&self.work) == BEGUN:
            with nogil:
                self.packer.wait_for(&self.work)
        return self.work.packed

    def __dealloc__(self):
        if self.packer is not None and self.packer.process == getpid():
            if self.packer.take_back(&self.work) == BEGUN:
                self.packer.wait_for(&self.work)
        PyBuffer_Release(&self.held)


cdef void pack(Work *work, Scratch *scratch) noexcept nogil:
    cdef Py_ssize_t bound = frame_bound(work.size), packed
    if scratch.room < bound:
        free(scratch.output)
        scratch.output = <uint8_t *> malloc(bound)
        scratch.room = 0 if scratch.output is NULL else bound
    if scratch.output is NULL:
        return
    packed = write_frame(work.place, work.size, scratch.output, scratch.table)
    if packed <= work.size:
        memcpy(work.place, scratch.output, packed)
        work.packed = packed

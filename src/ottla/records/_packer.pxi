"""Frames compressed ahead by a thread without the interpreter lock, included by `_lz4`; see `_lz4_pure` for the contract.

Packings wait in an intrusive linked list. The lock guards the list and the states. It is held briefly, and never by a
thread that waits for the interpreter lock. A frame is written to scratch memory and then copied over the records, so
it needs no lasting memory; if it did not become smaller, the records stay unchanged.

A forked child may inherit a locked mutex, so it does not use the lock and the conditions. They are never destroyed,
because that would wait for a thread that the child does not have.
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
    STARTED
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
            raise ValueError(f"the range {start} to {end} is not in a buffer of {len(buffer)} bytes")
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
                work.state = STARTED
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
        """Withdraw the work if it has not started; return its state."""
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
        while work.state == STARTED:
            pthread_cond_wait(&self.done, &self.lock)
        pthread_mutex_unlock(&self.lock)


@cython.no_gc  # it is in no cycle, and needs its packer until it is deleted
cdef class Packing:
    cdef Packer packer
    cdef Py_buffer held
    cdef Work work

    def withdraw(self):
        return self.packer.take_back(&self.work) == WITHDRAWN

    def size(self):
        if self.packer.take_back(&self.work) == STARTED:
            with nogil:
                self.packer.wait_for(&self.work)
        return self.work.packed

    def __dealloc__(self):
        if self.packer is not None and self.packer.process == getpid():
            if self.packer.take_back(&self.work) == STARTED:
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

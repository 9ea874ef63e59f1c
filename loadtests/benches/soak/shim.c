// Faults that the soak has happen inside the program: LD_PRELOADed, steered through a file that both have mapped.
//
// The clock of the day is off by as much as the file says; CLOCK_MONOTONIC goes on as it does, as on a machine whose clock is
// set. A sync to the disk waits for as long as the file says so, as on a disk that no longer answers.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// As shim.rs writes it.
struct control {
    _Atomic int64_t clock_seconds;
    _Atomic int64_t stalled;
};

static struct control none;
static struct control *control = &none;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_msync)(void *, size_t, int);

__attribute__((constructor)) static void begin(void)
{
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_msync = dlsym(RTLD_NEXT, "msync");
    const char *path = getenv("SOAK_CONTROL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        control = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    // Before the constructors have run.
    if (!real_clock_gettime)
        begin();
    int failed = real_clock_gettime(clock, time);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += atomic_load_explicit(&control->clock_seconds, memory_order_relaxed);
    return failed;
}

static void wait_for_the_disk(void)
{
    while (atomic_load_explicit(&control->stalled, memory_order_relaxed))
        usleep(2000);
}

int fsync(int file)
{
    wait_for_the_disk();
    return real_fsync(file);
}

int fdatasync(int file)
{
    wait_for_the_disk();
    return real_fdatasync(file);
}

int msync(void *start, size_t length, int flags)
{
    wait_for_the_disk();
    return real_msync(start, length, flags);
}

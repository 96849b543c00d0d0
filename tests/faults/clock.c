#define _GNU_SOURCE
/* A wall clock that can be set while a program runs: preloaded, it adds to the real one what stands
   in a mapped file, in nanoseconds. Monotonic clocks are left alone, as by a real jump. Waits until
   a moment of that clock are given the real one's. */

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none = 0;
static const volatile int64_t *offset = &none;

__attribute__((constructor)) static void map_offset(void) {
  const char *name = getenv("FAULTS_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) offset = mapped;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t ns = now->tv_nsec + *offset % 1000000000;
    now->tv_sec += *offset / 1000000000;
    if (ns < 0) ns += 1000000000, now->tv_sec--;
    if (ns >= 1000000000) ns -= 1000000000, now->tv_sec++;
    now->tv_nsec = ns;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec read;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &read);
  now->tv_sec = read.tv_sec;
  now->tv_usec = read.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  if (now) *now = read.tv_sec;
  return read.tv_sec;
}

typedef int (*timed_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
typedef int (*clock_wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

static struct timespec real(const struct timespec *moment) {
  struct timespec found = *moment;
  int64_t ns = found.tv_nsec - *offset % 1000000000;
  found.tv_sec -= *offset / 1000000000;
  if (ns < 0) ns += 1000000000, found.tv_sec--;
  if (ns >= 1000000000) ns -= 1000000000, found.tv_sec++;
  found.tv_nsec = ns;
  return found;
}

static void *next(const char *name, const char *version) {
  void *found = dlvsym(RTLD_NEXT, name, version);
  return found ? found : dlsym(RTLD_NEXT, name);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict moment) {
  static timed_wait wait;
  if (!wait) wait = (timed_wait)next("pthread_cond_timedwait", "GLIBC_2.3.2");
  /* Which clock it goes by stands in the condition; a machine that has run for 30 years would
     confuse this. */
  struct timespec found = moment->tv_sec > 1000000000 ? real(moment) : *moment;
  return wait(condition, mutex, &found);
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict moment) {
  static clock_wait wait;
  if (!wait) wait = (clock_wait)next("pthread_cond_clockwait", "GLIBC_2.30");
  struct timespec found = clock == CLOCK_REALTIME ? real(moment) : *moment;
  return wait(condition, mutex, clock, &found);
}

/* A pool with some workers, for programs that run the run-time by itself. */

#pragma once

#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 3 };

struct Pool *cujit_pool_make(void);
void cujit_pool_work(struct Pool *pool);
void cujit_pool_run(struct Pool *pool, void *kernel, struct Launch *launch, u32 helpers, u64 shared, u64 local);
void cujit_pool_stop(struct Pool *pool);
void cujit_pool_free(struct Pool *pool);
void cujit_install(void);

/* Unlike an assertion it is there in every build, and says where. */
#define HOLDS(what) \
  if (!(what)) fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what), abort()

struct Crew {
  struct Pool *pool;
  pthread_t all[WORKERS];
};

static void *crew_work(void *pool) {
  cujit_pool_work(pool);
  return 0;
}

static void crew_begin(struct Crew *crew) {
  crew->pool = cujit_pool_make();
  cujit_install();
  for (u32 k = 0; k < WORKERS; k++) pthread_create(&crew->all[k], 0, crew_work, crew->pool);
}

static void crew_end(struct Crew *crew) {
  cujit_pool_stop(crew->pool);
  for (u32 k = 0; k < WORKERS; k++) pthread_join(crew->all[k], 0);
  cujit_pool_free(crew->pool);
}

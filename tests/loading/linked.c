/* A program that is linked with what uses the library, and has threads with small stacks. */
#include <pthread.h>
#include <stdio.h>

int plugin_describe(void);

static void* describe(void* result) {
  *(int*)result = plugin_describe();
  return NULL;
}

int main(void) {
  for (size_t kib = 16; kib <= 64; kib *= 2) {
    pthread_attr_t attributes;
    pthread_t thread;
    int length = 0;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, kib << 10) != 0 ||
        pthread_create(&thread, &attributes, describe, &length) != 0 || pthread_join(thread, NULL) != 0 ||
        length <= 0) {
      fprintf(stderr, "a thread with a stack of %zu KiB fails\n", kib);
      return 1;
    }
    pthread_attr_destroy(&attributes);
  }
  return 0;
}

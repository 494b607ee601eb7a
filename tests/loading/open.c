/* open LIBRARY PLUGIN: opens the library and what uses it, works with it, and closes both, again and again, beside
   threads with small stacks. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void* opened(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return library;
}

typedef int (*Function)(void);
static Function function_of(void* library, const char* name) {
  Function function;
  *(void**)&function = dlsym(library, name);
  if (!function) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return function;
}

static void* describe(void* function) {
  const int length = function ? (*(Function*)function)() : 1;
  return length > 0 ? NULL : (void*)1;
}

static void run_thread(size_t stack_bytes, Function function) {
  pthread_attr_t attributes;
  pthread_t thread;
  void* failed = (void*)1;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, stack_bytes) != 0 ||
      pthread_create(&thread, &attributes, describe, function ? &function : NULL) != 0 ||
      pthread_join(thread, &failed) != 0 || failed) {
    fprintf(stderr, "a thread with a stack of %zu bytes fails\n", stack_bytes);
    exit(1);
  }
  pthread_attr_destroy(&attributes);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int round = 0; round < 100; ++round) {
    void* library = opened(argv[1]);
    void* plugin = opened(argv[2]);
    const Function describes = function_of(plugin, "plugin_describe");
    for (size_t kib = 16; kib <= 64; kib *= 2) {
      run_thread(kib << 10, NULL);
      run_thread(kib << 10, describes);
    }
    if (round % 50 == 0 && function_of(plugin, "plugin_multiply")() != 0) return 1;
    /* In either order, and once without the library's own handle. */
    if (round % 2) dlclose(library);
    dlclose(plugin);
    if (round % 2 == 0) dlclose(library);
    run_thread(16 << 10, NULL);
  }
  return 0;
}

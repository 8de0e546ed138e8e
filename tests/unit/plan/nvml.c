/* libnvidia-ml.so.1 of a made-up machine: GPU 0 is whole, GPU 1 divided, GPU 2 has no memory. */
#include <stdio.h>
#include <string.h>

typedef struct { int gpu, part; } device;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;

static device wholes[3] = {{0, -1}, {1, -1}, {2, -1}};
static device parts[2] = {{1, 0}, {1, 2}};

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **found) {
  *found = &wholes[index];
  return 0;
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  return snprintf(text, size, "580.1") < 0;
}
int nvmlDeviceGetName(device *of, char *text, unsigned size) {
  return snprintf(text, size, "GPU of %d", of->gpu) < 0;
}
int nvmlDeviceGetUUID(device *of, char *text, unsigned size) {
  if (of->part < 0) return snprintf(text, size, "GPU-%d", of->gpu) < 0;
  return snprintf(text, size, "MIG-%d-%d", of->gpu, of->part) < 0;
}
int nvmlDeviceGetMemoryInfo_v2(device *of, memory *said) {
  if (said->version != (sizeof(memory) | 2 << 24)) return 25;
  if (of->gpu == 2) return 3;
  said->total = (of->part < 0 ? 81559ULL : 20096ULL) << 20;
  said->reserved = 469ULL << 20;
  return 0;
}
int nvmlDeviceGetMemoryInfo(device *of, void *said) { return 3; }
int nvmlDeviceGetCudaComputeCapability(device *of, int *major, int *minor) {
  if (of->part >= 0) return 3;
  *major = 9, *minor = 0;
  return 0;
}
int nvmlDeviceGetNvLinkState(device *of, unsigned link, unsigned *up) {
  *up = link != 3;
  return of->gpu == 0 && link < 12 ? 0 : 3;
}
int nvmlDeviceGetMigMode(device *of, unsigned *current, unsigned *pending) {
  *current = *pending = of->gpu == 1;
  return of->gpu == 2 ? 3 : 0;
}
int nvmlDeviceGetMaxMigDeviceCount(device *of, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *of, unsigned index, device **found) {
  if (index != 0 && index != 2) return 6;
  *found = &parts[index / 2];
  return 0;
}

/* Opens NVTX ranges and prints of each what it is and the clock (UTC, ns) before and after its begin and its end. */
#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STEPS 4

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void rest(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

static nvtxDomainHandle_t solver;
static nvtxStringHandle_t residual;

static void run(const char *thread) {
    nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), thread);
    for (int i = 0; i < STEPS; i++) {
        long long outer[4], inner[4], mark[2];
        outer[0] = now();
        nvtxRangePushA("outer");
        outer[1] = now();
        rest(2000000);
        nvtxEventAttributes_t attributes = {0};
        attributes.version = NVTX_VERSION;
        attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        attributes.message.registered = residual;
        attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
        attributes.payload.llValue = i + 1;
        inner[0] = now();
        nvtxDomainRangePushEx(solver, &attributes);
        inner[1] = now();
        rest(1000000);
        mark[0] = now();
        nvtxMarkA("here");
        mark[1] = now();
        rest(1000000);
        inner[2] = now();
        nvtxDomainRangePop(solver);
        inner[3] = now();
        rest(1000000);
        outer[2] = now();
        nvtxRangePop();
        outer[3] = now();
        printf("%s range default outer %lld %lld %lld %lld\n", thread, outer[0], outer[1], outer[2], outer[3]);
        printf("%s range solver residual %lld %lld %lld %lld\n", thread, inner[0], inner[1], inner[2], inner[3]);
        printf("%s mark default here %lld %lld %lld %lld\n", thread, mark[0], mark[1], mark[0], mark[1]);
        rest(1000000);
    }
}

static void *second(void *unused) {
    (void)unused;
    run("second");
    return NULL;
}

int main(void) {
    pthread_t thread;
    nvtxInitialize(NULL);
    solver = nvtxDomainCreateA("solver");
    residual = nvtxDomainRegisterStringA(solver, "residual");
    pthread_create(&thread, NULL, second, NULL);
    run("first");
    pthread_join(thread, NULL);
    return 0;
}

/* A disk with arms that must travel, as a plugin of nbdkit:
 *
 *   nbdkit --readonly --threads=64 cc seek_disk.c image=FILE heads=N
 *
 * N heads hold the same content, so any of them may serve any request. A free head takes the waiting
 * request that is nearest to where it stands, except that one which has waited for AGED_MS goes first.
 * A request takes the travel of the arm, which grows with the root of the distance, half a turn of the
 * platter on average, and the transfer; one that continues where the head stands takes the transfer
 * alone. The more requests wait, the shorter the travel: what an event loop that asks for one thing
 * at a time cannot have. */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

#define SHORTEST_TRAVEL_MS 1.0
#define LONGEST_TRAVEL_MS 12.0
#define TURN_MS 8.3
#define BYTES_PER_MS 30000.0
#define AGED_MS 500.0
#define HEADS_MAX 64

struct request {
	struct request *next;
	char *to;
	uint64_t offset;
	uint32_t count;
	double arrived_ms;
	int error;
	int is_done;
	pthread_cond_t done;
};

struct head {
	uint64_t at;
	unsigned seed;
};

static int image = -1;
static int64_t size;
static int heads_wanted = 2;
static struct head heads[HEADS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrival = PTHREAD_COND_INITIALIZER;
/* Oldest first. */
static struct request *waiting;

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static uint64_t distance(uint64_t one, uint64_t other)
{
	return one > other ? one - other : other - one;
}

/* Takes out of the queue what this head shall serve next. */
static struct request *choose(const struct head *head)
{
	struct request **nearest = &waiting;
	if (now_ms() - waiting->arrived_ms < AGED_MS)
		for (struct request **at = &waiting->next; *at; at = &(*at)->next)
			if (distance((*at)->offset, head->at) < distance((*nearest)->offset, head->at))
				nearest = at;
	struct request *chosen = *nearest;
	*nearest = chosen->next;
	return chosen;
}

static double service_ms(struct head *head, const struct request *request)
{
	double transfer = request->count / BYTES_PER_MS;
	uint64_t way = distance(request->offset, head->at);
	if (way == 0)
		return transfer;
	double share = sqrt((double)way / size);
	double travel = SHORTEST_TRAVEL_MS + share * (LONGEST_TRAVEL_MS - SHORTEST_TRAVEL_MS);
	double rotation = TURN_MS * rand_r(&head->seed) / RAND_MAX;
	return travel + rotation + transfer;
}

static void sleep_until(double end_ms)
{
	uint64_t end_us = end_ms * 1e3;
	struct timespec end = { .tv_sec = end_us / 1000000, .tv_nsec = end_us % 1000000 * 1000 };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0)
		;
}

/* Reads the image within the time that the disk would take; what is slower than that is its own disk. */
static void serve(struct head *head, struct request *request)
{
	double end_ms = now_ms() + service_ms(head, request);
	for (uint32_t got = 0; got < request->count;) {
		ssize_t now = pread(image, request->to + got, request->count - got, request->offset + got);
		if (now <= 0) {
			request->error = 1;
			break;
		}
		got += now;
	}
	/* Twice in the page cache, the image would take memory from nothing but the figures. */
	posix_fadvise(image, request->offset, request->count, POSIX_FADV_DONTNEED);
	head->at = request->offset + request->count;
	sleep_until(end_ms);
}

static void *run_head(void *opaque)
{
	struct head *head = opaque;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!waiting)
			pthread_cond_wait(&arrival, &lock);
		struct request *request = choose(head);
		pthread_mutex_unlock(&lock);
		serve(head, request);
		pthread_mutex_lock(&lock);
		request->is_done = 1;
		pthread_cond_signal(&request->done);
	}
	return NULL;
}

static int configure(const char *key, const char *value)
{
	if (strcmp(key, "image") == 0) {
		image = open(value, O_RDONLY | O_CLOEXEC);
		if (image < 0)
			nbdkit_error("open %s: %m", value);
		return image < 0 ? -1 : 0;
	}
	if (strcmp(key, "heads") == 0)
		return nbdkit_parse_int("heads", value, &heads_wanted);
	nbdkit_error("unknown key %s", key);
	return -1;
}

static int check_configuration(void)
{
	struct stat stat;
	if (image < 0 || fstat(image, &stat) != 0 || heads_wanted < 1 || heads_wanted > HEADS_MAX) {
		nbdkit_error("wanted: image=FILE, and heads=1 to %d", HEADS_MAX);
		return -1;
	}
	size = stat.st_size;
	return 0;
}

/* Threads do not survive a fork, so not before it. */
static int start_heads(void)
{
	for (int number = 0; number < heads_wanted; number++) {
		pthread_t thread;
		heads[number].at = size / heads_wanted * number;
		heads[number].seed = number + 1;
		if (pthread_create(&thread, NULL, run_head, &heads[number]) != 0)
			return -1;
		pthread_detach(thread);
	}
	return 0;
}

static void *open_disk(int readonly)
{
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t get_size(void *handle)
{
	return size;
}

static int read_disk(void *handle, void *to, uint32_t count, uint64_t offset, uint32_t flags)
{
	struct request request = { .to = to, .offset = offset, .count = count, .arrived_ms = now_ms() };
	pthread_cond_init(&request.done, NULL);
	pthread_mutex_lock(&lock);
	struct request **last = &waiting;
	while (*last)
		last = &(*last)->next;
	*last = &request;
	pthread_cond_signal(&arrival);
	while (!request.is_done)
		pthread_cond_wait(&request.done, &lock);
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&request.done);
	if (request.error)
		nbdkit_set_error(EIO);
	return request.error ? -1 : 0;
}

static struct nbdkit_plugin plugin = {
	.name = "seekdisk",
	.config = configure,
	.config_complete = check_configuration,
	.after_fork = start_heads,
	.open = open_disk,
	.get_size = get_size,
	.pread = read_disk,
};

NBDKIT_REGISTER_PLUGIN(plugin)

/* Connections for copies: each has a thread, which carries out pieces beside the calls. */
#include <sys/socket.h>
#include <unistd.h>
#include "address.h"
#include "server.h"
#include "system.h"

#define MOST_CONNECTIONS 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static int connections[MOST_CONNECTIONS], count;

/* A piece, carried out as the call would be; false if it is none. */
static bool carry_out(int fd, const struct wire_piece *p, unsigned char *buffer)
{
	struct answer a = {0};
	struct served s;
	size_t data = p->call == CALL_write_large ? p->copy.bytes : 0;

	memcpy(buffer, &p->copy, sizeof p->copy);
	if (!socket_read(fd, buffer + sizeof p->copy, data))
		return false;
	s.lane = p->lane;
	s.number = 0;
	s.in = (struct reader){buffer, buffer + sizeof p->copy + data};
	s.out.size = 0;
	s.apart = (struct apart){0};
	a.result = service_run(p->call, &s);
	bool ok = a.result != BROKEN && socket_write(fd, &a, sizeof a) && (!s.apart.size || socket_write(fd, s.apart.data, s.apart.size));
	if (s.apart.over)
		s.apart.over(s.apart.arg);
	return ok;
}

static void *serve_pieces(void *arg)
{
	int fd = (int)(intptr_t)arg;
	unsigned char *buffer = NULL;
	struct wire_piece p;

	while (socket_read(fd, &p, sizeof p) && (p.call == CALL_write_large || p.call == CALL_read) && p.lane < MOST_LANES && p.copy.bytes <= CHUNK) {
		if (!buffer && lane_enter(p.lane))
			buffer = buffer_get();
		if (!buffer || !carry_out(fd, &p, buffer))
			break;
	}
	if (buffer)
		buffer_put(buffer);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < count; i++)
		if (connections[i] == fd) {
			connections[i] = connections[--count];
			break;
		}
	close(fd);
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
	return NULL;
}

bool copies_serve(int fd)
{
	bool ok;

	address_tune(fd);
	pthread_mutex_lock(&lock);
	ok = count < MOST_CONNECTIONS && thread_start(serve_pieces, (void *)(intptr_t)fd);
	if (ok)
		connections[count++] = fd;
	pthread_mutex_unlock(&lock);
	return ok;
}

void copies_end(void)
{
	pthread_mutex_lock(&lock);
	while (count) {
		for (int i = 0; i < count; i++)
			shutdown(connections[i], SHUT_RDWR);
		pthread_cond_wait(&ended, &lock);
	}
	pthread_mutex_unlock(&lock);
}

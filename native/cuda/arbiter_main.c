/*
 * elastic-gpu-arbiter: gives out the turns on a node's cards among containers that share them.
 *
 *   elastic-gpu-arbiter FOLDER     the agent's folder of shares, as /var/lib/elastic-gpu/gpushare
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "arbiter.h"

static void stop(int signal)
{
	(void)signal;
	_exit(0); /* nothing is lost: containers limit themselves until the next one comes */
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: elastic-gpu-arbiter FOLDER\n");
		return 2;
	}
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	return arbiter_run(argv[1]);
}

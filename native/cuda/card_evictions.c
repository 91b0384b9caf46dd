/*
 * Cards that are granted to more memory than they have: who moves out for whom. The process that has waited for memory
 * longest is the evictor; others are asked to move out what it lacks, and it then runs for its quantum. What processes
 * say is bounded by their container's own limit and by time: one that claims to wait for ever loses its place, and one
 * that claims memory and does not move is not asked again for a while.
 */
#include "card_turns.h"

#define MOVE_NS (30000 * MS)       /* an eviction that is not answered within this will not be */
#define IMMOVABLE_NS (60000 * MS)  /* one that did not move is not asked again for so long */
#define NOBODY (-1)

static bool is_evictor(const struct card *c, int tenant, int row)
{
	return c->evictor_tenant == tenant && c->evictor_row == row;
}

static uint64_t at_most(uint64_t n, uint64_t most) { return n < most ? n : most; }

void card_row_memory(struct card *c, int tenant, int row, const struct said_memory *said, int64_t now)
{
	struct tenant *t = &c->tenant[tenant];
	struct row *r = &t->row[row];

	r->resident = at_most(said->resident, t->memory);
	r->missing = at_most(said->missing, t->memory);
	r->runnable = said->runnable == 1;
	if (!r->missing)
		r->starved_since = 0;
	else if (!r->starved_since)
		r->starved_since = now;
	if (r->evict && (said->moved == r->eviction || now - r->evict_since > MOVE_NS)) {
		if (r->resident >= r->evict_from)
			r->immovable_until = now + IMMOVABLE_NS;
		r->evict = 0;
	}
}

/* The starved process that has waited longest. */
static bool longest_starved(const struct card *c, int64_t now, int *tenant, int *row)
{
	int64_t since = INT64_MAX;

	for (int i = 0; i < c->tenants; i++) {
		const struct tenant *t = &c->tenant[i];
		for (int r = 0; t->used && r < t->rows; r++)
			if (t->row[r].starved_since && t->row[r].starved_since < since && card_row_present(&t->row[r], now)) {
				since = t->row[r].starved_since;
				*tenant = i;
				*row = r;
			}
	}
	return since != INT64_MAX;
}

/* The evictor stays while it waits for memory, up to a bound, and then for its quantum. */
static bool evictor_stays(struct card *c, int64_t now)
{
	struct tenant *t = &c->tenant[c->evictor_tenant];
	struct row *r = &t->row[c->evictor_row];

	if (!card_row_present(r, now))
		return false;
	if (!c->evictor_satisfied && !r->starved_since) {
		c->evictor_satisfied = true; /* the quantum is for work, not for waiting */
		c->evictor_since = now;
	}
	if (c->evictor_satisfied)
		return now - c->evictor_since < t->quantum;
	if (now - c->evictor_since < MOVE_NS + t->quantum)
		return true;
	r->starved_since = now; /* it goes behind the others that wait */
	return false;
}

static void choose_evictor(struct card *c, int64_t now)
{
	int tenant, row;

	if (c->evictor_tenant != NOBODY && evictor_stays(c, now))
		return;
	if (!longest_starved(c, now, &tenant, &row))
		return; /* the one before stays until another comes: it need not move out and in */
	c->evictor_tenant = tenant;
	c->evictor_row = row;
	c->evictor_since = now;
	c->evictor_satisfied = false;
}

/* One that does not run anyway, else the one that has most. */
static struct row *victim(struct card *c, int64_t now)
{
	struct row *found = NULL;

	for (int i = 0; i < c->tenants; i++) {
		struct tenant *t = &c->tenant[i];
		for (int n = 0; t->used && n < t->rows; n++) {
			struct row *r = &t->row[n];
			if (is_evictor(c, i, n) || !r->resident || !card_row_present(r, now) || now < r->immovable_until)
				continue;
			if (!found || r->runnable < found->runnable || (r->runnable == found->runnable && r->resident > found->resident))
				found = r;
		}
	}
	return found;
}

void card_decide_evictions(struct card *c, int64_t now)
{
	struct row *from, *evictor;

	choose_evictor(c, now);
	if (c->evictor_tenant == NOBODY)
		return;
	evictor = &c->tenant[c->evictor_tenant].row[c->evictor_row];
	from = evictor->starved_since ? victim(c, now) : NULL;
	if (!from || from->evict)
		return;
	from->evict = evictor->missing;
	from->evict_from = from->resident;
	from->evict_since = now;
	from->eviction++;
}

/* Memory that was freed for another process is not its to take, even if it sees it first. */
bool card_may_enter(const struct card *c, int tenant, int row, int64_t now)
{
	int first_tenant, first_row;

	if (is_evictor(c, tenant, row) || !longest_starved(c, now, &first_tenant, &first_row))
		return true;
	return first_tenant == tenant && first_row == row;
}

unsigned card_movable(const struct card *c, int64_t now)
{
	unsigned n = 0;

	for (int i = 0; i < c->tenants; i++)
		for (int r = 0; c->tenant[i].used && r < c->tenant[i].rows; r++)
			n += c->tenant[i].row[r].resident && card_row_present(&c->tenant[i].row[r], now);
	return n;
}

/* Steps are seen from the launches and the waits of all threads of a program together; time in which a launch waited for the turn is not the step's. */
#include "steps.h"

static int bounded(int score) { return score < 0 ? 0 : score > SHORT_STEPS_MOST ? SHORT_STEPS_MOST : score; }

void step_begin(struct steps *s, int64_t now, int64_t waited)
{
	int64_t none = 0;

	if (atomic_compare_exchange_strong(&s->begun, &none, now))
		atomic_store(&s->waited, waited);
}

void step_end(struct steps *s, int64_t now, int64_t waited)
{
	int64_t begun = atomic_exchange(&s->begun, 0);
	int score = atomic_load(&s->score);

	if (!begun)
		return;
	score += now - begun - (waited - atomic_load(&s->waited)) <= STEP_NS ? 1 : -SHORT_STEPS;
	atomic_store(&s->score, bounded(score));
}

void step_look(struct steps *s, int64_t now, int64_t waited)
{
	int64_t begun = atomic_load(&s->begun);

	if (begun && now - begun - (waited - atomic_load(&s->waited)) > LONG_STEP_NS)
		atomic_store(&s->score, 0);
}

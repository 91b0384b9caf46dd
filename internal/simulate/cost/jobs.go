package cost

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// Job is a job with a deadline. Times are minutes from the start of the market.
type Job struct {
	Name     string
	Submit   int
	Work     int // run time
	Deadline int
	Machines int
	Cards    int // that it asks a queue for
}

// Settings of a run, in minutes.
type Settings struct {
	StartUp    int
	Checkpoint int // how often jobs save their work; 0: never
	// A job's deadline is so many times its run time after its submission, and so much more.
	DeadlineFactor float64
	DeadlineExtra  int
}

// Default settings: those of the goals.
var Default = Settings{StartUp: 13, Checkpoint: 30, DeadlineFactor: 1.5, DeadlineExtra: 60}

// WithDeadline is the job with the deadline that the settings give it.
func (s *Settings) WithDeadline(j Job) Job {
	j.Deadline = j.Submit + int(s.DeadlineFactor*float64(j.Work)) + s.DeadlineExtra
	return j
}

// Invented jobs of 1 to 16 hours, submitted at random so that the last deadline is within the market. Where a series asked for
// several machines, jobs want 1, 2, 4, … up to that.
func Invented(n int, m *Market, s *Settings, seed uint64) ([]Job, error) {
	r := rand.New(rand.NewPCG(23, seed))
	longest := min(16*60, int(float64(m.Minutes()-s.DeadlineExtra-1)/max(1, s.DeadlineFactor)))
	if longest < 60 {
		return nil, fmt.Errorf("%d minutes are too short for a job and its deadline", m.Minutes())
	}
	jobs := make([]Job, n)
	for i := range jobs {
		j := Job{Name: fmt.Sprintf("job-%04d", i), Work: 60 + r.IntN(longest-60+1), Machines: 1}
		for j.Machines*2 <= m.Machines && r.IntN(2) == 0 {
			j.Machines *= 2
		}
		j.Submit = r.IntN(max(1, m.Minutes()-s.WithDeadline(j).Deadline))
		jobs[i] = s.WithDeadline(j)
	}
	return jobs, nil
}

// WithCards are the jobs with 1, 2, 4, … cards, up to so many.
func WithCards(jobs []Job, most int, seed uint64) []Job {
	r := rand.New(rand.NewPCG(24, seed))
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].Cards = 1
		for jobs[i].Cards*2 <= most && r.IntN(2) == 0 {
			jobs[i].Cards *= 2
		}
	}
	return jobs
}

// machinesFor so many cards.
func (m *Market) machinesFor(cards int) int { return max(1, (cards+m.GPUs-1)/m.GPUs) }

// OfTrace are the jobs of a trace whose deadlines are within the market, on as many machines as have their cards.
func OfTrace(trace *world.Trace, m *Market, s *Settings) ([]Job, error) {
	var jobs []Job
	for i := range trace.Jobs {
		from := &trace.Jobs[i]
		j := s.WithDeadline(Job{
			Name: from.ID, Submit: int(from.Submit / 60), Work: max(1, int((from.Duration+59)/60)),
			Machines: m.machinesFor(int(from.Cards)), Cards: max(1, int(from.Cards)),
		})
		if j.Deadline < m.Minutes() {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("no job of %s has its deadline within %d minutes", trace.Name, m.Minutes())
	}
	return jobs, nil
}

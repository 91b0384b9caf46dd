// Package gpuscheduler tests elastic-gpu-scheduler against a real API server and a real
// kube-scheduler that asks it, and elastic-scheduler, which is both in one.
package gpuscheduler

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apiruntime "k8s.io/apimachinery/pkg/runtime"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

// asked are the tests that hold for every front end of the scheduler.
var asked = []struct {
	name string
	run  func(*testing.T)
}{
	{"PodGetsAShareOfACard", podGetsAShareOfACard},
	{"PodGetsWholeCards", podGetsWholeCards},
	{"NonsenseIsTurnedAway", nonsenseIsTurnedAway},
	{"PodWaitsForFreeCards", podWaitsForFreeCards},
	{"UnhealthyCardIsAvoided", unhealthyCardIsAvoided},
	{"PodGroupStartsTogether", podGroupStartsTogether},
	{"FirstExamplesWork", firstExamplesWork},
	{"ClaimWaitsForItsFirstConsumer", claimWaitsForItsFirstConsumer},
	{"ClaimIsShared", claimIsShared},
	{"ClaimOfACardOfAnotherNode", claimOfACardOfAnotherNode},
	{"CardOfAnotherNodeIsChosenFirst", cardOfAnotherNodeIsChosenFirst},
	{"PreemptedJobLeavesACardOfAnotherNode", preemptedJobLeavesACardOfAnotherNode},
	{"RetainedElasticGPUIsOfferedAgain", retainedElasticGPUIsOfferedAgain},
	{"ProvisionerOutOfTree", provisionerOutOfTree},
	{"ClaimThatCannotBeServedSaysWhy", claimThatCannotBeServedSaysWhy},
	{"ForgedCardsAreRefused", forgedCardsAreRefused},
	{"PodThatNobodyBoundGetsNoRecord", podThatNobodyBoundGetsNoRecord},
	{"ForeignElasticGPUIsRefused", foreignElasticGPUIsRefused},
	{"ClaimStaysWithItsElasticGPU", claimStaysWithItsElasticGPU},
	{"AgentWritesAboutItsNodeAlone", agentWritesAboutItsNodeAlone},
	{"QueueMakesNoOtherWebhook", queueMakesNoOtherWebhook},
}

// kube-scheduler asks the program over HTTP.
func TestExtender(t *testing.T) {
	byWayOf(t, local.AsExtender)
	t.Run("StrangerIsNotAnswered", strangerIsNotAnswered)
	t.Run("SecondReplicaTakesOver", secondReplicaTakesOver)
}

// The engine is a plugin in a scheduler of our own. Only it can preempt for a card: of a node with 340 of 400 taken,
// kube-scheduler itself finds enough free capacity and preempts no pod.
func TestPlugin(t *testing.T) {
	byWayOf(t, local.AsPlugin)
	t.Run("ImportantPodGetsACardOfAnother", importantPodGetsACardOfAnother)
}

func byWayOf(t *testing.T, front local.GPUScheduler) {
	cluster = sandbox.For(t, sandbox.Options{
		Nodes:        "1x4:H100-80G,2x2:A100-40G,1x0",
		GPUScheduler: front,
		Scheme:       []func(*apiruntime.Scheme) error{egpu.AddToScheme, kueue.AddToScheme},
	})
	for _, test := range asked {
		t.Run(test.name, test.run)
	}
}

// pod with one container that asks for resources, given in pairs.
func pod(namespace, name string, pairs ...any) *corev1.Pod {
	limits := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		limits[corev1.ResourceName(fmt.Sprint(pairs[i]))] = *resource.NewQuantity(int64(pairs[i+1].(int)), resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{sandbox.RunFor: "forever"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/train:1", Resources: corev1.ResourceRequirements{Limits: limits},
			}},
		},
	}
}

// running waits until a pod runs, and reads it.
func running(t *testing.T, p *corev1.Pod) {
	t.Helper()
	sandbox.Eventually(t, "pod "+p.Name+" runs", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s: %v", p.Status.Phase, p.Status.Conditions)
		}
		return nil
	})
}

// waits for the reason that kube-scheduler gives for a pod that has no place.
func unschedulable(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	message := ""
	sandbox.Eventually(t, "pod "+p.Name+" is refused", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("conditions %v", p.Status.Conditions)
	})
	return message
}

func remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := cluster.Delete(t.Context(), object); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		uid := object.GetUID()
		sandbox.Eventually(t, object.GetName()+" is gone", func(ctx context.Context) error {
			err := cluster.Get(ctx, client.ObjectKeyFromObject(object), object)
			if err == nil && object.GetUID() == uid { // another of its name may be there already
				return fmt.Errorf("it is there")
			}
			return client.IgnoreNotFound(err)
		})
	}
}

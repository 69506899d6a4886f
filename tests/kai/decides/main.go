// Command kai-decides prints what KAI Scheduler decides in one cycle on each of the snapshots that it is given.
//
// It reads paths of snapshot archives, one a line, from standard input, and answers each with one line of JSON.
package main

import (
	"archive/zip"
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"

	kaifake "github.com/NVIDIA/KAI-scheduler/pkg/apis/client/clientset/versioned/fake"
	draclient "github.com/NVIDIA/KAI-scheduler/pkg/common/resources/dra_version_aware_client"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/actions"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/cache"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/conf_util"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/framework"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/log"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/metrics"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/plugins"
	"github.com/NVIDIA/KAI-scheduler/pkg/scheduler/plugins/snapshot"
)

// pod is what became of a pod: its state after the actions, its node, and the devices that it shares.
type pod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	PodGroup  string   `json:"podGroup"`
	State     string   `json:"state"`
	Node      string   `json:"node,omitempty"`
	Groups    []string `json:"gpuGroups,omitempty"`
}

// share is what fair share gives a queue before the actions; -1 where it is unlimited.
type share struct {
	CPUMilli float64 `json:"cpuMilli"`
	Memory   float64 `json:"memory"`
	GPUs     float64 `json:"gpus"`
}

type answer struct {
	Path    string           `json:"path"`
	Error   string           `json:"error,omitempty"`
	Seconds float64          `json:"seconds"`
	Actions map[string]int64 `json:"actionMicroseconds,omitempty"`
	Shares  map[string]share `json:"fairShares,omitempty"`
	Pods    []pod            `json:"pods,omitempty"`
}

func main() {
	if err := log.InitLoggers(logLevel()); err != nil {
		fmt.Fprintln(os.Stderr, "kai-decides:", err)
		os.Exit(1)
	}
	actions.InitDefaultActions()
	plugins.InitDefaultPlugins()

	paths := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for paths.Scan() {
		if err := answers.Encode(decide(paths.Text())); err != nil {
			fmt.Fprintln(os.Stderr, "kai-decides:", err)
			os.Exit(1)
		}
	}
}

// logLevel keeps KAI's own log out of the answers, unless the caller asks for it.
func logLevel() int {
	level := 0
	if text := os.Getenv("KAI_LOG_LEVEL"); text != "" {
		fmt.Sscan(text, &level)
	}
	return level
}

// decide answers for one snapshot; where KAI panics, that is the answer.
func decide(path string) (result answer) {
	result.Path = path
	defer func() {
		if problem := recover(); problem != nil {
			result.Error = fmt.Sprint(problem)
		}
	}()
	stored, err := read(path)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	stop := make(chan struct{})
	defer close(stop)
	clusterCache, err := serve(stored, stop)
	if err != nil {
		result.Error = err.Error()
		return result
	}

	start := time.Now()
	session, err := framework.OpenSession(clusterCache, stored.Config, stored.SchedulerParams, "", &http.ServeMux{})
	if err != nil {
		result.Error = err.Error()
		return result
	}
	defer framework.CloseSession(session)
	steps, err := conf_util.GetActionsFromConfig(stored.Config)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	result.Shares = map[string]share{}
	for _, queue := range session.Queues {
		fair := session.QueueFairShare(queue)
		result.Shares[queue.Name] = share{fair.Cpu(), fair.Memory(), fair.GPUs()}
	}
	result.Actions = map[string]int64{}
	for _, step := range steps {
		began := time.Now()
		metrics.SetCurrentAction(string(step.Name()))
		step.Execute(session)
		result.Actions[string(step.Name())] = time.Since(began).Microseconds()
	}
	result.Seconds = time.Since(start).Seconds()
	for _, group := range session.PodGroupInfos {
		for _, task := range group.GetAllPodsMap() {
			result.Pods = append(result.Pods, pod{
				task.Namespace, task.Name, string(group.UID), task.Status.String(), task.NodeName, task.GPUGroups,
			})
		}
	}
	return result
}

func read(path string) (*snapshot.Snapshot, error) {
	archive, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	file, err := archive.Open(snapshot.SnapshotFileName)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	stored := &snapshot.Snapshot{}
	return stored, json.NewDecoder(file).Decode(stored)
}

// serve fills an API server in memory with the objects of the snapshot, and KAI's cache from that.
func serve(stored *snapshot.Snapshot, stop chan struct{}) (cache.Cache, error) {
	raw := stored.RawObjects
	kube, kai := fake.NewSimpleClientset(), kaifake.NewSimpleClientset()
	kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{Major: "1", Minor: "34"}
	if len(raw.ResourceClaims)+len(raw.ResourceSlices)+len(raw.DeviceClasses) > 0 {
		kube.Resources = claimKinds
	}
	if err := errors.Join(
		addAll(kube.Tracker(), raw.Pods),
		addAll(kube.Tracker(), raw.Nodes),
		addAll(kube.Tracker(), raw.PriorityClasses),
		addAll(kube.Tracker(), raw.ConfigMaps),
		addAll(kube.Tracker(), raw.PersistentVolumeClaims),
		addAll(kube.Tracker(), raw.CSIStorageCapacities),
		addAll(kube.Tracker(), raw.StorageClasses),
		addAll(kube.Tracker(), raw.CSIDrivers),
		addAll(kube.Tracker(), raw.ResourceClaims),
		addAll(kube.Tracker(), raw.ResourceSlices),
		addAll(kube.Tracker(), raw.DeviceClasses),
		addAll(kai.Tracker(), raw.BindRequests),
		addAll(kai.Tracker(), raw.PodGroups),
		addAll(kai.Tracker(), raw.Queues),
		addAll(kai.Tracker(), raw.Topologies),
	); err != nil {
		return nil, err
	}

	client, settings := draclient.NewDRAAwareClient(kube), stored.SchedulerParams
	filled := cache.New(&cache.SchedulerCacheParams{
		KubeClient:                  client,
		KAISchedulerClient:          kai,
		DiscoveryClient:             client.Discovery(),
		SchedulerName:               settings.SchedulerName,
		NodePoolParams:              settings.PartitionParams,
		RestrictNodeScheduling:      settings.RestrictSchedulingNodes,
		FullHierarchyFairness:       settings.FullHierarchyFairness,
		AllowConsolidatingReclaim:   settings.AllowConsolidatingReclaim,
		ScheduleCSIStorage:          settings.ScheduleCSIStorage,
		NumOfStatusRecordingWorkers: settings.NumOfStatusRecordingWorkers,
	})
	filled.Run(stop)
	filled.WaitForCacheSync(stop)
	return filled, nil
}

func addAll[T runtime.Object](tracker testing.ObjectTracker, objects []T) error {
	for _, object := range objects {
		if err := tracker.Add(object); err != nil {
			return err
		}
	}
	return nil
}

// claimKinds is what KAI asks the API server for before it reads claims.
var claimKinds = []*metav1.APIResourceList{{
	GroupVersion: "resource.k8s.io/v1",
	APIResources: []metav1.APIResource{
		{Name: "resourceclaims", Kind: "ResourceClaim", Namespaced: true},
		{Name: "resourceslices", Kind: "ResourceSlice"},
		{Name: "deviceclasses", Kind: "DeviceClass"},
	},
}}

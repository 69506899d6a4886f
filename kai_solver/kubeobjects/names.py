"""Every label, annotation and resource name that KAI and Kubernetes give a meaning.

Source: docs/kai-behaviour.md#names-on-objects.
"""

# Pods and their owners
POD_GROUP = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
SKIP_PODGROUPER = "kai.scheduler/skip-podgrouper"
QUEUE = "kai.scheduler/queue"
NODE_POOL = "kai.scheduler/node-pool"
PROJECT = "project"
PRIORITY_CLASS = "priorityClassName"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
TASK_PRIORITY = "kai.scheduler/task-priority"
PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
STALENESS_GRACE = "kai.scheduler/staleness-grace-period"
TOPOLOGY = "kai.scheduler/topology"
TOPOLOGY_REQUIRED = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED = "kai.scheduler/topology-preferred-placement"
TOPOLOGIES = (TOPOLOGY, TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED)
BATCH_MIN_MEMBER = "kai.scheduler/batch-min-member"
GPU_FRACTION = "gpu-fraction"
GPU_MEMORY = "gpu-memory"
GPU_FRACTION_DEVICES = "gpu-fraction-num-devices"
GPU_FRACTION_CONTAINER = "gpu-fraction-container-name"
MPS = "mps"
SHARED_GPU_MAP = "runai/shared-gpu-configmap"
GPU_GROUP = "runai-gpu-group"
GPU_GROUP_PREFIX = "runai-gpu-group/"
RECEIVED_TYPE = "received-resource-type"
JOB_ID = "kai.nvidia.com/job-id"
JOB_SIZE = "kai.nvidia.com/job-size"
JOB_ROLE = "training.kubeflow.org/job-role"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
RAY_NODE_TYPE = "ray.io/node-type"
RAY_GROUP = "ray.io/group"

NUMA_OBSERVED = "kai.scheduler/numa-placement-observed"
NUMA_PREDICTED = "kai.scheduler/numa-placement-predicted"

# PodGroups
STALE_SINCE = "kai.scheduler/stale-podgroup-timestamp"
LAST_START = "kai.scheduler/last-start-timestamp"
LAST_EVICTION = "kai.scheduler/last-eviction-timestamp"
TOP_OWNER = "kai.scheduler/top-owner-metadata"
USER = "user"
"""Label of a pod that its PodGroup has, too."""

# KAI's own utility pods
RESERVATION_NAMESPACE = "kai-resource-reservation"
SCALING_NAMESPACE = "kai-scale-adjust"
RESERVED_INDEX = "run.ai/reserve_for_gpu_index"

USER_PREFIX = "users.kai-solver/"
"""On reservation pods: a pod that has a part of the device, by its uid."""

PROMISED = "~promised"
"""Suffix of the name and uid of an expected pod's stand-in: the API server accepts no such names."""

# Nodes
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"

# Ours: what a Snapshot knows and Kubernetes objects have no field for, so that an export loses nothing
OWN_DEVICES = "kai-solver/devices"
OWN_WISHED = "kai-solver/gpus"
OWN_GPU_UUIDS = "kai-solver/gpu-uuids"
OWN_BLOCKED = "kai-solver/blocked"
OWN_PROBLEM = "kai-solver/problem"
OWN_SET_ASIDE = "kai-solver/set-aside"
OWN_USAGE = "kai-solver/usage"

# Ours: what KAI knows for a whole cluster only, or not at all; on Queues, PodGroups, pods and their owners
OWN_NODES = "kai-solver/node-strategy"
OWN_GPUS = "kai-solver/gpu-strategy"
OWN_MAX_GPUS_PER_NODE = "kai-solver/max-gpus-per-node"
OWN_MAX_PODS_PER_NODE = "kai-solver/max-pods-per-node"
OWN_MIN_NODES = "kai-solver/min-nodes"
OWN_WORKLOAD = "kai-solver/workload"
OWN_MAY_USE_SPARES = "kai-solver/may-use-spares"
OWN_RUN_TIME = "kai-solver/run-time"
"""On pods: how long they run, at most."""

OWN_DRAIN_AT = "kai-solver/drain-at"
"""On nodes: when their pods have to be gone."""

OWN_CREATED = "kai-solver/created"
"""On PodGroups that we wrote: since when their gang is there, which is longer than they are."""

OWN_SHARE = "kai-solver/gpu-share"
"""On pods: their part of shared devices, as the scheduler gave it to them."""

OWN_SIGNED_SHARE = "kai-solver/signed-gpu-share"
OWN_SIGNED_GPUS = "kai-solver/signed-gpus"
OWN_SIGNED_ZONES = "kai-solver/signed-numa-placement-predicted"
SIGNATURES = {OWN_SHARE: OWN_SIGNED_SHARE, OWN_WISHED: OWN_SIGNED_GPUS, NUMA_PREDICTED: OWN_SIGNED_ZONES}
"""Annotations that we sign, and the annotations of their signatures."""

# Ours, on the Lease and on the Secret of signing keys
OWN_STORED_FORMAT = "kai-solver/stored-format"
OWN_VERSION = "kai-solver/version"

# Ours, on Topologies: rules for whole domains
OWN_ONE_TENANT_AT = "kai-solver/one-tenant-at"
OWN_TENANT = "kai-solver/tenant"
OWN_SPARE_NODES = "kai-solver/spare-nodes"
RULE_SETTING = "kai-solver/rule-"
"""What annotations of a Queue begin with that set an optional rule: the name of the rule follows."""

PLACEMENT = (OWN_NODES, OWN_GPUS, OWN_MAX_GPUS_PER_NODE, OWN_MAX_PODS_PER_NODE, OWN_MIN_NODES)

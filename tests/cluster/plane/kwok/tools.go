// Package kwok pins the kubelets of a test cluster.
package kwok

import _ "sigs.k8s.io/kwok/pkg/kwok/cmd"

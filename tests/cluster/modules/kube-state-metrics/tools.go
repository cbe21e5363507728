//go:build tools

// Package modules pins kube-state-metrics for the tests of the dashboard of GPU pods in go.mod; nothing runs it.
package modules

import _ "k8s.io/kube-state-metrics/v2"

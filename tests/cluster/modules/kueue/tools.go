//go:build tools

// Package modules pins Kueue for the tests of queued GPU pods in go.mod; nothing runs it.
package modules

import _ "sigs.k8s.io/kueue/cmd/kueue"

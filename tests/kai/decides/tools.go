//go:build tools

package main

// What a hand-over meets: KAI's own components, built as they are.
import (
	_ "github.com/NVIDIA/KAI-scheduler/cmd/binder/app"
	_ "github.com/NVIDIA/KAI-scheduler/cmd/podgroupcontroller/app"
	_ "github.com/NVIDIA/KAI-scheduler/cmd/podgrouper/app"
	_ "github.com/NVIDIA/KAI-scheduler/cmd/queuecontroller/app"
	_ "github.com/NVIDIA/KAI-scheduler/cmd/scheduler/app"
)

// SPDX-License-Identifier: Apache-2.0

// A server on go-control-plane's linear caches behind its mux cache, for comparison.
//
// It serves the resources of a file over delta ADS, and takes changes by its standard input: each
// line names a file with one resource, which replaces that of the same name. It ends with its
// input.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"net"
	"os"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func main() {
	address := flag.String("address", "127.0.0.1:18020", "where to serve")
	resources := flag.String("resources", "", "file with an encoded DeltaDiscoveryResponse: what to serve")
	flag.Parse()
	if err := run(*address, *resources); err != nil {
		log.Fatal(err)
	}
}

func run(address, path string) error {
	served, err := load(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	rpc := grpc.NewServer(
		grpc.MaxConcurrentStreams(math.MaxUint32), grpc.MaxRecvMsgSize(math.MaxInt32),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(rpc, server.NewServer(ctx, mux(served), nil))
	failed := make(chan error, 1)
	go func() { failed <- rpc.Serve(listener) }()
	defer rpc.Stop()
	fmt.Println("ready")
	changed := make(chan error, 1)
	go func() { changed <- takeChanges(served) }()
	select {
	case err = <-failed:
	case err = <-changed:
	}
	return err
}

// load reads the resources, a linear cache for each type of them.
func load(path string) (map[string]*cache.LinearCache, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	byType := map[string]map[string]types.Resource{}
	for _, each := range all.Resources {
		packed := each.Resource
		name, resource, err := unpack(packed)
		if err != nil {
			return nil, err
		}
		if byType[packed.TypeUrl] == nil {
			byType[packed.TypeUrl] = map[string]types.Resource{}
		}
		byType[packed.TypeUrl][name] = resource
	}
	served := map[string]*cache.LinearCache{}
	for url, named := range byType {
		served[url] = cache.NewLinearCache(url, cache.WithInitialResources(named))
	}
	return served, nil
}

func unpack(packed *anypb.Any) (string, types.Resource, error) {
	message, err := packed.UnmarshalNew()
	if err != nil {
		return "", nil, err
	}
	name := cache.GetResourceName(message)
	if name == "" {
		return "", nil, errors.New("a resource without a name: " + packed.TypeUrl)
	}
	return name, message, nil
}

func mux(served map[string]*cache.LinearCache) *cache.MuxCache {
	caches := map[string]cache.Cache{}
	for url, one := range served {
		caches[url] = one
	}
	return &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.TypeUrl },
		ClassifyDelta: func(request *cache.DeltaRequest) string { return request.TypeUrl },
		Caches:        caches,
	}
}

// takeChanges applies what the lines of standard input name, until it ends.
func takeChanges(served map[string]*cache.LinearCache) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		raw, err := os.ReadFile(lines.Text())
		if err != nil {
			return err
		}
		var changed discovery.Resource
		if err := proto.Unmarshal(raw, &changed); err != nil {
			return err
		}
		name, resource, err := unpack(changed.Resource)
		if err != nil {
			return err
		}
		if err := served[changed.Resource.TypeUrl].UpdateResource(name, resource); err != nil {
			return err
		}
	}
	return lines.Err()
}

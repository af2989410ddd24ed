# SPDX-License-Identifier: Apache-2.0
"""Services, EndpointSlices and Pods become what Kubernetes itself would serve."""

import textwrap

import hypothesis
import pytest
from hypothesis import strategies

from pilothouse.config import documents
from pilothouse.kubernetes import services as kubernetes
from pilothouse.model import keys, services

WEB = keys.ServiceKey("shop", "web")


def read(*texts):
    text = "\n---\n".join(textwrap.dedent(text) for text in texts)
    found, problems = documents.load(text, location="shop.yaml")
    assert problems == ()
    return kubernetes.registry_state(found)


def addresses(state, key=WEB):
    return [(each.address, each.port, each.ready) for each in state.endpoints.get(key, ())]


def service(extra="", ports="[{name: http, port: 80, targetPort: 8080}]"):
    return f"""
        apiVersion: v1
        kind: Service
        metadata: {{name: web, namespace: shop}}
        spec:
          ports: {ports}
          selector: {{app: web}}
          {extra}
    """


def pod(name, address, extra="", conditions="[]", labels="{app: web, version: v1}"):
    return f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: {name}, namespace: shop, labels: {labels}}}
        spec:
          serviceAccountName: web
          containers:
          - name: main
            ports: [{{name: serve, containerPort: 9000}}]
        status: {{podIP: "{address}", conditions: {conditions}}}
        {extra}
    """


def slice_(name, endpoints, ports="[{name: http, port: 8080}]", family="IPv4"):
    return f"""
        apiVersion: discovery.k8s.io/v1
        kind: EndpointSlice
        metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}
        addressType: {family}
        ports: {ports}
        endpoints: {endpoints}
    """


def test_pods_of_the_selector_are_endpoints():
    """Without slices, the pods that the selector picks stand behind the service."""
    state, problems = read(
        service("clusterIP: 10.0.0.7"),
        pod("a", "10.1.0.1"),
        pod("b", "10.1.0.2", labels="{app: other}"),
    )
    assert problems == ()
    assert state.synced
    assert state.services[WEB] == services.Service(
        key=WEB,
        ports=(
            services.Port(
                number=80, name="http", protocol=services.AppProtocol.HTTP, target_port=8080
            ),
        ),
        cluster_ips=("10.0.0.7",),
        selector=(("app", "web"),),
    )
    assert state.endpoints[WEB] == (
        services.Endpoint(
            address="10.1.0.1",
            port=8080,
            port_name="http",
            labels=(("app", "web"), ("version", "v1")),
            workload="a",
        ),
    )
    assert [each.name for each in state.workloads] == ["a", "b"]
    assert state.workloads[0].service_account == "web"


@pytest.mark.parametrize(
    ("conditions", "extra", "expected"),
    [
        ("[]", "", True),
        ("[{type: Ready, status: 'True'}]", "", True),
        ("[{type: Ready, status: 'False'}]", "", False),
        ("[{type: Ready, status: Unknown}]", "", False),
        ("[{type: Initialized, status: 'False'}]", "", True),
    ],
)
def test_a_pod_is_ready_by_its_condition(conditions, extra, expected):
    """The Ready condition decides; a pod that has none is ready."""
    state, _ = read(service(), pod("a", "10.1.0.1", extra, conditions))
    assert addresses(state) == [("10.1.0.1", 8080, expected)]


def test_not_ready_addresses_are_published_when_asked_for():
    """publishNotReadyAddresses makes every pod count as ready."""
    state, _ = read(
        service("publishNotReadyAddresses: true"),
        pod("a", "10.1.0.1", conditions="[{type: Ready, status: 'False'}]"),
    )
    assert addresses(state) == [("10.1.0.1", 8080, True)]


def test_pods_without_address_and_finished_pods_are_no_endpoints():
    """A pod that has not started, or has ended, serves nothing."""
    ended = pod("done", "10.1.0.2").replace("status: {", "status: {phase: Succeeded, ")
    state, problems = read(service(), pod("pending", ""), ended)
    assert problems == ()
    assert addresses(state) == []
    assert [each.name for each in state.workloads] == ["pending"]


def test_target_port_by_name_is_the_container_port():
    """A named targetPort is looked up at each pod; a pod without it is left out of that port."""
    unnamed = pod("b", "10.1.0.2").replace("name: serve", "name: other")
    state, _ = read(
        service(ports="[{name: http, port: 80, targetPort: serve}, {name: raw, port: 81}]"),
        pod("a", "10.1.0.1"),
        unnamed,
    )
    found = [(each.address, each.port, each.port_name) for each in state.endpoints[WEB]]
    assert found == [("10.1.0.1", 81, "raw"), ("10.1.0.1", 9000, "http"), ("10.1.0.2", 81, "raw")]


def test_slices_win_over_pods_and_take_labels_from_them():
    """With a slice the selector counts for nothing; labels come by targetRef, or by address."""
    state, _ = read(
        service(),
        pod("a", "10.1.0.1"),
        pod("b", "10.1.0.2", labels="{app: web, version: v2}"),
        pod("c", "10.1.0.3"),
        slice_(
            "web-1",
            """[{addresses: [10.1.0.1], zone: z1, targetRef: {kind: Pod, name: a}},
                {addresses: [10.1.0.2]}, {addresses: [192.0.2.1]}]""",
        ),
    )
    found = [(each.address, dict(each.labels), each.workload) for each in state.endpoints[WEB]]
    assert found == [
        ("10.1.0.1", {"app": "web", "version": "v1"}, "a"),
        ("10.1.0.2", {"app": "web", "version": "v2"}, "b"),
        ("192.0.2.1", {}, ""),
    ]
    assert state.endpoints[WEB][0].locality == services.Locality(zone="z1")


def test_several_slices_and_ports_join_by_port_name():
    """Slice ports are matched to service ports by name; a name the service lacks is not served."""
    state, _ = read(
        service(ports="[{name: http, port: 80}, {name: grpc, port: 90}]"),
        slice_(
            "web-1",
            "[{addresses: [10.1.0.1]}]",
            "[{name: http, port: 8080}, {name: grpc, port: 9090}, {name: old, port: 1}]",
        ),
        slice_("web-2", "[{addresses: [10.1.0.2]}]"),
    )
    found = [(each.address, each.port, each.port_name) for each in state.endpoints[WEB]]
    assert found == [
        ("10.1.0.1", 8080, "http"),
        ("10.1.0.1", 9090, "grpc"),
        ("10.1.0.2", 8080, "http"),
    ]


def test_an_endpoint_in_two_slices_counts_once_and_ready():
    """Endpoints may be in two slices while they move; one of them saying ready is enough."""
    state, _ = read(
        service(),
        slice_("web-1", "[{addresses: [10.1.0.1], conditions: {ready: false}}]"),
        slice_("web-2", "[{addresses: [10.1.0.1], conditions: {ready: true}}]"),
    )
    assert addresses(state) == [("10.1.0.1", 8080, True)]


DRAINING = "conditions: {ready: false, serving: true, terminating: true}"
GONE = "conditions: {ready: false, serving: false, terminating: true}"


def test_draining_endpoints_serve_only_when_none_is_ready():
    """KEP-1669: terminating endpoints that still serve are used when a port has no ready one."""
    state, _ = read(
        service(),
        slice_("web-1", f"[{{addresses: [10.1.0.1], {DRAINING}}}, {{addresses: [10.1.0.2]}}]"),
    )
    assert addresses(state) == [("10.1.0.1", 8080, False), ("10.1.0.2", 8080, True)]
    state, _ = read(
        service(),
        slice_(
            "web-1",
            f"[{{addresses: [10.1.0.1], {DRAINING}}}, {{addresses: [10.1.0.2], {GONE}}}]",
        ),
    )
    assert addresses(state) == [("10.1.0.1", 8080, True), ("10.1.0.2", 8080, False)]


def test_a_terminating_pod_drains_likewise():
    """A pod that is being deleted is not ready, and is used when no other is."""
    leaving = pod("a", "10.1.0.1").replace(
        "metadata: {", "metadata: {deletionTimestamp: '2026-01-01T00:00:00Z', "
    )
    state, _ = read(service(), leaving, pod("b", "10.1.0.2"))
    assert addresses(state) == [("10.1.0.1", 8080, False), ("10.1.0.2", 8080, True)]
    state, _ = read(service(), leaving)
    assert addresses(state) == [("10.1.0.1", 8080, True)]


def test_dual_stack_workloads_count_once():
    """Of a workload with two addresses the one in the service's first family is used."""
    both = "[{addresses: ['%s'], targetRef: {kind: Pod, name: a}}]"
    manual = "[{addresses: ['%s']}]"
    for first, expected in (("IPv4", "10.1.0.1"), ("IPv6", "fd00::1")):
        state, _ = read(
            service(f"ipFamilies: [{first}]"),
            slice_("web-4", both % "10.1.0.1"),
            slice_("web-6", both % "fd00:0::1", family="IPv6"),
        )
        assert addresses(state) == [(expected, 8080, True)]
    state, _ = read(
        service(),
        slice_("web-4", manual % "10.1.0.1"),
        slice_("web-6", manual % "fd00::2", family="IPv6"),
    )
    assert addresses(state) == [("10.1.0.1", 8080, True), ("fd00::2", 8080, True)]


def test_headless_and_external_name_services():
    """A headless service has endpoints and no address; an ExternalName is recorded, lower-case."""
    state, problems = read(
        service("clusterIP: None"),
        pod("a", "10.1.0.1"),
        """
        apiVersion: v1
        kind: Service
        metadata: {name: outside}
        spec: {type: ExternalName, externalName: API.example.com., selector: {app: web}}
        """,
    )
    assert problems == ()
    assert state.services[WEB].cluster_ips == ()
    assert addresses(state) == [("10.1.0.1", 8080, True)]
    outside = keys.ServiceKey("default", "outside")
    assert state.services[outside].external_name == "api.example.com"
    assert addresses(state, outside) == []


def test_a_service_without_selector_has_the_endpoints_of_its_slices_only():
    """An empty selector picks no pod."""
    bare = service().replace("selector: {app: web}", "")
    state, _ = read(bare, pod("a", "10.1.0.1"))
    assert addresses(state) == []
    state, _ = read(bare, slice_("manual", "[{addresses: [192.0.2.9]}]"))
    assert addresses(state) == [("192.0.2.9", 8080, True)]


MALFORMED = [
    (service(ports="[{port: 0}]"), "spec.ports[0].port: must be 1 to 65535, is 0"),
    (
        service(ports="[{port: '80'}]"),
        "spec.ports[0].port: must be an integer, is the text '80'",
    ),
    (service(ports="[{name: a}]"), "spec.ports[0].port: is required"),
    (
        service(ports="[{port: 1, protocol: QUIC}]"),
        "spec.ports[0].protocol: must be TCP, UDP or SCTP, is 'QUIC'",
    ),
    (
        service(ports="[{port: 1, name: a}, {port: 2}]"),
        "spec.ports[1].name: is required when there are several ports",
    ),
    (service(ports="{port: 1}"), "spec.ports: must be a list, is a mapping"),
    (service("clusterIP: here"), "spec.clusterIP: must be an IP address, is 'here'"),
    (pod("a", "10.1.0"), "status.podIP: must be an IP address, is '10.1.0'"),
    (pod("a", "10.1.0.1", labels="[app]"), "metadata.labels: must be a mapping, is a list"),
    (slice_("s", "[{addresses: []}]"), "endpoints[0].addresses: at least one address is required"),
    (
        slice_("s", "[{addresses: ['::1']}]"),
        "endpoints[0].addresses[0]: must be an IPv4 address, is '::1'",
    ),
    (slice_("s", "[]", family="FQDN"), "addressType: must be IPv4 or IPv6, is 'FQDN'"),
    (
        slice_("s", "[]").replace("kubernetes.io/service-name: web", "a: b"),
        "metadata.labels[kubernetes.io/service-name]: is required",
    ),
]


@pytest.mark.parametrize(("manifest", "message"), MALFORMED)
def test_a_malformed_object_costs_itself_only(manifest, message):
    """The problem names file, document, object and field; a neighbour is served all the same."""
    neighbour = service().replace("name: web,", "name: neighbour,")
    state, problems = read(neighbour, manifest)
    assert list(state.services) == [keys.ServiceKey("shop", "neighbour")]
    assert [(each.location, each.message) for each in problems] == [("shop.yaml:2", message)]
    assert problems[0].key is not None
    assert problems[0].key.namespace == "shop"


def test_all_violations_are_told_at_once():
    """Nobody has to fix one field to hear of the next."""
    assert len(read(service("clusterIP: here", ports="[{port: 0, protocol: QUIC}]"))[1]) == 3


def test_other_objects_and_other_versions_are_ignored():
    """A folder may hold Deployments, and kinds of the same name from another API."""
    state, problems = read(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}",
        "{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: web}}",
        service("unknownField: {a: 1}"),
    )
    assert problems == ()
    assert list(state.services) == [WEB]


def test_the_first_of_two_objects_with_one_name_counts():
    """The second is a problem that names the first."""
    state, problems = read(service(), service(ports="[{port: 81}]"))
    assert state.services[WEB].ports[0].number == 80
    assert problems[0].message == "is already defined in shop.yaml:1"
    assert problems[0].location == "shop.yaml:2"


def test_ports_with_one_number_are_ordered():
    """DNS is the classic: TCP and UDP on 53, in either order."""
    ports = ["{name: dns, port: 53, protocol: UDP}", "{name: dns-tcp, port: 53}"]
    one, _ = read(service(ports=f"[{', '.join(ports)}]"))
    other, _ = read(service(ports=f"[{', '.join(reversed(ports))}]"))
    assert one == other
    assert [each.name for each in one.services[WEB].ports] == ["dns-tcp", "dns"]


ALL = (
    service(ports="[{name: http, port: 80, targetPort: serve}, {name: raw, port: 81}]"),
    service().replace("name: web,", "name: other,"),
    pod("a", "10.1.0.1"),
    pod("b", "10.1.0.2", conditions="[{type: Ready, status: 'False'}]"),
    slice_("s1", "[{addresses: [10.1.0.1, 10.1.0.9]}, {addresses: [10.1.0.2]}]"),
    slice_("s2", "[{addresses: [10.1.0.2], conditions: {ready: false}}]"),
)


@hypothesis.given(strategies.permutations(ALL))
def test_order_means_nothing(manifests):
    """Any order of the same objects gives the same state, in the same order."""
    state, expected = read(*manifests)[0], read(*ALL)[0]
    assert state == expected
    assert list(state.services.items()) == list(expected.services.items())
    assert list(state.endpoints.items()) == list(expected.endpoints.items())


def test_namespaces_do_not_see_each_other():
    """The state of the whole is that of its namespaces, side by side and in order."""
    elsewhere = service().replace("namespace: shop", "namespace: depot")
    whole, _ = read(*ALL, elsewhere)
    shop, _ = read(*ALL)
    depot, _ = read(elsewhere)
    assert whole.services == {**depot.services, **shop.services}
    assert whole.endpoints == {**depot.endpoints, **shop.endpoints}
    assert whole.workloads == (*depot.workloads, *shop.workloads)
    assert list(whole.services) == sorted(whole.services)

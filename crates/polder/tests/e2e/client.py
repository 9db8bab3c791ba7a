"""Drives two planes with the Python client. Usage: client.py KUBECONFIG_A KUBECONFIG_B"""

import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException


def refused(code, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        return
    raise AssertionError(f"{code} expected")


def objects(api):
    """Create, read, list, replace, patch and delete typed objects."""
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    metadata = client.V1ObjectMeta(name="a", labels={"from": "python"})
    made = core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=metadata, data={"k": "v"}))
    assert made.metadata.uid and made.metadata.resource_version.isdigit()
    made.data["k"] = "w"
    core.replace_namespaced_config_map("a", "default", made)
    refused(409, core.replace_namespaced_config_map, "a", "default", made)
    core.patch_namespaced_config_map("a", "default", {"data": {"l": "m"}})
    assert core.read_namespaced_config_map("a", "default").data == {"k": "w", "l": "m"}
    found = core.list_config_map_for_all_namespaces(label_selector="from=python")
    assert [item.metadata.name for item in found.items] == ["a"]

    container = client.V1Container(name="web", image="nginx")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "web"}), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(
        replicas=1, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template
    )
    deployment = client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    apps.create_namespaced_deployment("default", deployment)
    apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 3}})
    assert apps.read_namespaced_deployment("web", "default").spec.replicas == 3
    assert apps.read_namespaced_deployment_scale("web", "default").spec.replicas == 3
    apps.delete_namespaced_deployment("web", "default")
    core.delete_namespaced_config_map("a", "default")
    refused(404, core.read_namespaced_config_map, "a", "default")


def watches(api):
    """Events come while they happen, and the watch ends at its time limit."""
    core = client.CoreV1Api(api)
    version = core.list_namespaced_secret("default").metadata.resource_version
    seen = []

    def write():
        for name in ["one", "two"]:
            core.create_namespaced_secret("default", client.V1Secret(metadata=client.V1ObjectMeta(name=name)))
        core.patch_namespaced_secret("one", "default", {"stringData": {"a": "b"}})
        core.delete_namespaced_secret("two", "default")

    writer = threading.Thread(target=write)
    writer.start()
    stream = watch.Watch().stream(
        core.list_namespaced_secret, "default", resource_version=version, timeout_seconds=20
    )
    for event in stream:
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 4:
            break
    writer.join()
    assert seen == [("ADDED", "one"), ("ADDED", "two"), ("MODIFIED", "one"), ("DELETED", "two")], seen
    stream = watch.Watch().stream(core.list_namespace, timeout_seconds=1)
    assert {event["object"].metadata.name for event in stream} >= {"default", "kube-system"}


def custom(api):
    """A new kind is there at once, also for the dynamic client."""
    extensions = client.ApiextensionsV1Api(api)
    names = {"plural": "cars", "singular": "car", "kind": "Car"}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"doors": {"type": "integer", "default": 4}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    extensions.create_custom_resource_definition(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "cars.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    cars = dynamic.DynamicClient(api).resources.get(api_version="example.com/v1", kind="Car")
    body = {"apiVersion": "example.com/v1", "kind": "Car", "metadata": {"name": "c"}, "spec": {}}
    assert cars.create(body=body, namespace="default").spec.doors == 4
    plain = client.CustomObjectsApi(api)
    assert len(plain.list_namespaced_custom_object("example.com", "v1", "default", "cars")["items"]) == 1


def main(paths):
    apis = [config.new_client_from_config(config_file=path) for path in paths]
    for api in apis:
        objects(api)
        watches(api)
    custom(apis[0])
    plain = client.CustomObjectsApi(apis[1])
    refused(404, plain.list_namespaced_custom_object, "example.com", "v1", "default", "cars")


main(sys.argv[1:])

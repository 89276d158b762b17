"""review: questions are read whole or refused, answers are rendered as the API server expects them."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from tests.support.reviews import body_of, review_of

from berth.control.review import (
    BadReview,
    Faults,
    GroupKind,
    User,
    allowed,
    denied,
    parse_review,
    patched,
    render,
)


def rendered(answer: Any, **request: Any) -> dict[str, Any]:
    envelope = orjson.loads(render(review_of(**request), answer))
    assert (envelope["apiVersion"], envelope["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = envelope["response"]
    assert response["uid"] == "u-1"
    return response


def test_a_review_is_read_whole() -> None:
    review = review_of(
        dryRun=True,
        oldObject={"spec": {"size": 1}},
        options={"kind": "CreateOptions"},
        subResource="status",
        userInfo={"username": "ann", "uid": "7", "groups": ["admins"]},
    )
    assert review.operation == "CREATE"
    assert review.kind == GroupKind("example.org", "Box")
    assert (review.resource, review.subresource) == ("boxes", "status")
    assert (review.namespace, review.name) == ("default", "b1")
    assert review.user == User("ann", "7", ("admins",))
    assert review.object["spec"] == {"size": 2}
    assert review.old_object == {"spec": {"size": 1}}
    assert review.dry_run
    assert review.options == {"kind": "CreateOptions"}


def test_an_object_that_will_be_named_by_the_server_has_no_name_yet() -> None:
    review = review_of(name="", object={"metadata": {"generateName": "b-"}})
    assert review.name == ""


def test_a_name_made_by_the_server_is_not_in_the_request() -> None:
    """As validating webhooks see it; and a Namespace has no namespace, of which its request says one."""
    review = review_of(name="", object={"metadata": {"generateName": "b-", "name": "b-x7k2p"}})
    assert review.name == "b-x7k2p"
    assert review_of(namespace="b1", object={"metadata": {"name": "b1"}}).namespace == "b1"


def test_a_deleted_object_comes_as_the_old_one() -> None:
    review = review_of(operation="DELETE", object=None, oldObject={"metadata": {"name": "b1"}})
    assert review.object == {}
    assert review.old_object["metadata"]["name"] == "b1"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not an AdmissionReview"),
        (b'{"kind": "Pod"}', "not an AdmissionReview"),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}',
            "must be admission.k8s.io/v1",
        ),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "no complete request"),
        (body_of(uid=""), "no complete request"),
        (body_of(kind=None), "no complete request"),
        (body_of(object=[]), "no complete request"),
        (body_of(object="text"), "no complete request"),
        (body_of(namespace=7), "no complete request"),
        (body_of(name=["b1"]), "no complete request"),
        (body_of(object={"metadata": "b1"}), "no complete request"),
        (body_of(object={"metadata": {"name": 1}}), "no complete request"),
        (body_of(object={"metadata": {"annotations": {"a": 1}}}), "no complete request"),
        (body_of(oldObject={"metadata": {"labels": ["a"]}}), "no complete request"),
        (body_of(object={"metadata": {"finalizers": "b1"}}), "no complete request"),
        (body_of(object={"metadata": {"finalizers": [1]}}), "no complete request"),
        (body_of(object={"metadata": {"ownerReferences": ["b1"]}}), "no complete request"),
        (body_of(uid="u" * 300), "no complete request"),
        (body_of(kind={"group": 7, "kind": "Box"}), "no complete request"),
        (body_of(userInfo=["ann"]), "no complete request"),
        (body_of(userInfo={"username": {"a": 1}}), "no complete request"),
        (body_of(userInfo={"username": "ann", "groups": "abc"}), "no complete request"),
        (body_of(userInfo={"username": "ann", "extra": 5}), "no complete request"),
        (body_of(userInfo={"username": "ann", "extra": {"a": "b"}}), "no complete request"),
        (b"[" + b"1," * 600_001 + b"1]", "more parts than any object"),
        (b"[" * 600_001, "more parts than any object"),
        (body_of(object={"metadata": {"name": "b1", "namespace": "theirs"}}), "namespace of the object is"),
        (body_of(object={"metadata": {"name": "b2"}}), "name of the object is not that of the request"),
        (body_of(oldObject={"metadata": {"namespace": "theirs"}}), "namespace of the oldObject is"),
        (body_of(oldObject={"metadata": {"name": "b2"}}), "name of the oldObject is not"),
        (body_of(namespace="", object={"metadata": {"namespace": "mine"}}), "namespace of the object is"),
    ],
)
def test_what_is_no_review_is_refused_with_its_fault(body: bytes, why: str) -> None:
    with pytest.raises(BadReview, match=why):
        parse_review(body)


def test_an_allowed_review_says_no_more() -> None:
    assert rendered(allowed()) == {"uid": "u-1", "allowed": True}


def test_warnings_go_with_any_answer() -> None:
    assert rendered(allowed("old field"))["warnings"] == ["old field"]
    assert rendered(denied("no").warning("and more"))["warnings"] == ["and more"]


def test_a_plain_denial_is_403_forbidden() -> None:
    response = rendered(denied("not on a Sunday"))
    assert response["allowed"] is False
    status = {"status": "Failure", "code": 403, "reason": "Forbidden", "message": "not on a Sunday"}
    assert response["status"] == status


def test_a_patch_carries_only_what_differs() -> None:
    review = review_of()
    answer = patched(review, {**review.object, "spec": {"size": 2, "mode": "first"}})
    assert answer.result == "patched"
    response = rendered(answer)
    assert response["patchType"] == "JSONPatch"
    patch = orjson.loads(base64.b64decode(response["patch"]))
    assert patch == [{"op": "add", "path": "/spec/mode", "value": "first"}]


def test_a_patch_to_the_same_is_plainly_allowed() -> None:
    review = review_of()
    assert patched(review, dict(review.object)) == allowed()


def test_no_faults_is_allowed() -> None:
    assert Faults().answer(review_of()) == allowed()


def test_one_fault_is_told_as_the_api_server_tells_its_own() -> None:
    faults = Faults()
    faults.add("spec.size", 0, "must be at least 1")
    response = rendered(faults.answer(review_of()))
    assert response["status"] == {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": 'Box.example.org "b1" is invalid: spec.size: Invalid value: 0: must be at least 1',
        "details": {
            "name": "b1",
            "group": "example.org",
            "kind": "Box",
            "causes": [
                {
                    "reason": "FieldValueInvalid",
                    "message": "Invalid value: 0: must be at least 1",
                    "field": "spec.size",
                }
            ],
        },
    }


def test_every_fault_is_told_in_its_order() -> None:
    faults = Faults()
    faults.add("spec.pools[0]", {"start": "a"}, "bad start")
    faults.add("spec.gateway", "x y", "is not a valid IP address")
    answer = faults.answer(review_of())
    assert answer.message == (
        'Box.example.org "b1" is invalid: [spec.pools[0]: Invalid value: {"start":"a"}: bad start, '
        'spec.gateway: Invalid value: "x y": is not a valid IP address]'
    )
    assert [cause.field for cause in answer.causes] == ["spec.pools[0]", "spec.gateway"]


def test_values_of_any_size_and_type_can_be_told() -> None:
    faults = Faults()
    faults.add("spec.count", 2**128, "too many")
    faults.add("spec.at", complex(1, 2), "no time")
    assert (
        "Invalid value: 340282366920938463463374607431768211456: too many"
        in faults.answer(review_of()).message
    )


def test_a_long_value_is_told_by_its_beginning() -> None:
    faults = Faults()
    faults.add(f"spec.{'p' * 500}", "v" * 500, f"no {'t' * 500}")
    faults.add("spec.entry", {"start": "v" * 500}, "is odd")
    answer = faults.answer(review_of())
    for told in (answer.message, str(answer.causes)):
        assert not [letter for letter in "pvt" if letter * 201 in told]
        assert f"{'v' * 180}" in told


def test_a_core_kind_has_no_dot() -> None:
    assert str(GroupKind("", "Service")) == "Service"


def test_objects_do_not_show_when_a_review_is_printed() -> None:
    assert "size" not in repr(review_of())

"""Methods of Graph that come from op records.

An elementwise op has a method of its name, whose operands and keywords are those of the
record; `Op.method` says how another op's node is added. Methods of several ops, or with
arguments of their own, are functions of a graph in `methods.py` of a family, which
`graph_method` registers. Graph gets all of them when a name is looked for that it does
not have, as no op is loaded before the first is needed.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rlxweb.core.argument_validation import bind_call, check_call_options
from rlxweb.core.errors import GraphError, RlxError
from rlxweb.ir.attribute import REQUIRED, Attr, AttrKind
from rlxweb.ir.builder_call_trace import traced_method
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Op, registry
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor, not_a_tensor, op_context

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

_OPERAND_NAMES = ("x", "y")
_ATTR_ANNOTATIONS = {"dtype": "DTypeLike", "ints": "Axes", "any": "Any"}
"""Type of the values of an attribute of a kind, where it is not the kind's name."""


F = TypeVar("F", bound=Callable[..., Any])


@overload
def graph_method(function: F, /) -> F: ...
@overload
def graph_method(name: str, /) -> Callable[[F], F]: ...
def graph_method(target: Callable[..., Any] | str, /) -> Callable[..., Any]:
    """Make a function (graph, …) a method of Graph: `@graph_method`, or under another
    name than the function's `@graph_method("slice")`.
    """

    def register(function: F) -> F:
        name = target if isinstance(target, str) else function.__name__
        registry.graph_methods[name] = function
        return function

    return register if isinstance(target, str) else register(target)


def as_bool(graph: Graph, x: Tensor) -> Tensor:
    """Return a bool tensor that is true where x is not 0."""
    if x.dtype is DType.BOOL:
        return x
    return graph.apply("cast", x, to=DType.BOOL)


def upcast_half(x: Tensor) -> Tensor:
    """Cast f16 to f32, as its squares and sums may exceed its range; leave other
    dtypes.
    """
    return x.cast(DType.F32) if x.dtype is DType.F16 else x


def cast_like(x: Tensor, like: Tensor) -> Tensor:
    """Cast x to the dtype of `like`."""
    return x if x.dtype is like.dtype else x.cast(like.dtype)


def reshape_if_needed(x: Tensor, shape: Shape) -> Tensor:
    """Return x in a shape, without a node where it has that shape."""
    return x if x.shape == shape else x.reshape(shape)


def add_logical(graph: Graph, op: str, *operands: Tensor) -> Tensor:
    """Add a logical op; numbers count as true where they are not 0."""
    with op_context(op, *operands):
        return graph.apply(op, *(as_bool(graph, x) for x in operands))


def add_node(graph: Graph, op: str, *operands: Tensor, **attrs: Any) -> Tensor:
    """Add the node of an op as it is; the usual `Op.method` of one with a kernel."""
    return graph.apply(op, *operands, **attrs)


def has_method(op: Op) -> bool:
    """Return whether Graph gets a method from this record.

    Ops do that say how their node is added, and elementwise ones of one or two
    operands.
    """
    is_plain = op.has_trait("elementwise") and op.arity in (1, 2)
    return op.method is not None or is_plain


def method_signature(op: Op) -> Signature:
    """Return the signature of an op's method: its operands, then its attributes.

    Those that `Op.method` has as parameters after the graph and the op's name are taken
    from there. Other operands are x and y, other attributes as in the record.
    """
    kind, count = Parameter.POSITIONAL_OR_KEYWORD, op.arity_range()[0]
    _, _, *own_parameters = signature(op.method or add_node).parameters.values()
    named = [parameter for parameter in own_parameters if parameter.kind is kind]
    operand_names = [parameter.name for parameter in named[:count]]
    operand_type = "Tensor" if op.arity == 1 else "Tensor | Operand"
    operands = [
        Parameter(name, kind, annotation=operand_type)
        for name in operand_names or _OPERAND_NAMES[:count]
    ]
    attributes = named[count:] or [
        Parameter(
            attr.name,
            kind,
            default=Parameter.empty if attr.default is REQUIRED else attr.default,
            annotation=_ATTR_ANNOTATIONS.get(attr.kind, attr.kind),
        )
        for attr in op.attrs
    ]
    parameters = [Parameter("self", kind), *operands, *attributes]
    return Signature(parameters, return_annotation="Tensor")


def _make_method(op: Op) -> Callable[..., Any]:
    """Return the method of an op; a number or an array stands beside a tensor."""
    own_signature, name, count = method_signature(op), op.name, op.arity_range()[0]
    operand_names = list(own_signature.parameters)[1 : 1 + count]
    required = [
        p for p in own_signature.parameters.values() if p.default is Parameter.empty
    ]
    has_required_attrs = len(required) > 1 + count
    add_op = op.method or add_node

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs or len(args) != count or has_required_attrs:
            bound = bind_call(own_signature, f"Graph.{name}", (self, *args), kwargs)
            kwargs = bound.arguments
            kwargs.pop("self")
            args = tuple(kwargs.pop(operand) for operand in operand_names)
        operands = self._pair(*args) if count == 2 else args
        return add_op(self, name, *operands, **kwargs)

    method.__dict__["__signature__"] = own_signature
    method.__name__, method.__qualname__, method.__doc__ = name, f"Graph.{name}", op.doc
    return traced_method(name, method)


_ATTR_KINDS: dict[str, tuple[AttrKind, type]] = {
    "Axes": ("ints", int),
    "SpatialSizes": ("ints", int),
    "bool": ("bool", bool),
    "float": ("float", float),
    "int": ("int", int),
    "str": ("str", str),
}
"""By annotation of a parameter: the kind of attribute that it is, and the type that
nearly all its values have.
"""


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a graph whose errors name it, and whose arguments are
    checked by their annotations: tensors, and what would be attributes of an op.

    Errors   AttributeRefused, GraphError.
    """
    checks: dict[str, tuple[Callable[[Any], Any], type]] = {}
    names = list(signature(function).parameters)
    for parameter in signature(function).parameters.values():
        annotation = str(parameter.annotation).removesuffix(" | None")
        is_nullable = annotation != str(parameter.annotation)
        if annotation in _ATTR_KINDS:
            kind, usual_type = _ATTR_KINDS[annotation]
            attr = Attr(parameter.name, kind, is_nullable=is_nullable)
            checks[parameter.name] = (attr.check, usual_type)
        elif annotation == "Tensor":
            checks[parameter.name] = (partial(_check_tensor, is_nullable), Tensor)
    by_position = [checks.get(parameter_name) for parameter_name in names]

    def check(value: Any, entry: tuple[Callable[[Any], Any], type] | None) -> Any:
        if entry is None or type(value) is entry[1]:
            return value
        canonical = entry[0](value)
        # Axes may come from an iterator, which the check has used up.
        return canonical if isinstance(value, Iterator) else value

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            pairs = zip_longest(args, by_position[: len(args)])
            values = [check(value, entry) for value, entry in pairs]
            for key, value in kwargs.items():
                kwargs[key] = check(value, checks.get(key))
            return function(*values, **kwargs)
        except RlxError as error:
            _name_method(error, name, args[1:2])
            raise
        except TypeError:
            check_call_options(signature(function), f"Graph.{name}", kwargs)
            raise

    return checked


def _check_tensor(is_nullable: bool, value: Any) -> None:
    """Check that an operand is a tensor. Errors  GraphError."""
    if not isinstance(value, Tensor) and not (is_nullable and value is None):
        raise GraphError("", *not_a_tensor(value))


def _name_method(error: RlxError, name: str, operands: tuple[Any, ...]) -> None:
    """Say in an error which method was called, before the op that it was adding."""
    context = name + "".join(f" of {x!r}" for x in operands if isinstance(x, Tensor))
    if not error.doing:
        error.doing = context
    elif not error.doing.startswith(name):
        *_, innermost = error.doing.split(", in ")
        error.doing = f"{context}, in {innermost}"


def _as_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a registered function as a method: checked, traced, by its own name."""
    method = traced_method(name, _checked(name, function))
    self_parameter, *parameters = signature(function).parameters.values()
    method.__dict__["__signature__"] = signature(function).replace(
        parameters=[self_parameter.replace(name="self"), *parameters]
    )
    method.__name__, method.__qualname__ = name, f"Graph.{name}"
    if not method.__doc__ and name in registry:
        method.__doc__ = registry.get(name).doc
    return method


class LoadsOpMethods(ABCMeta):
    """Type of Graph: a name that it lacks may be that of an op."""

    _op_methods: frozenset[str]

    def load_op_methods(cls) -> bool:
        """Give the base of Graph the methods of all op records; return whether any
        came.
        """
        holder: Any = next(c for c in cls.__mro__ if "_op_methods" in vars(c))
        if holder._op_methods:
            return False
        ops = [op for op in registry if registry.is_builtin(op.name) and has_method(op)]
        if not registry.is_loaded:  # an op's own module looks for a name
            return False
        methods = {op.name: _make_method(op) for op in ops}
        for name, function in registry.graph_methods.items():
            methods[name] = _as_method(name, function)
        for name, method in methods.items():
            setattr(holder, name, method)
        holder._op_methods = frozenset(methods)
        return True

    if not TYPE_CHECKING:  # to a type checker every name would be an attribute

        def __getattr__(cls, name: str) -> Any:
            if name[:1] != "_" and cls.load_op_methods():
                return getattr(cls, name)
            message = f"type object {cls.__name__!r} has no attribute {name!r}"
            raise AttributeError(message)

    def __dir__(cls) -> list[str]:
        cls.load_op_methods()
        return [*super().__dir__()]

    @property
    def BUILDS(cls) -> frozenset[str]:  # noqa: N802  a constant of Graph to its users
        """Names of the methods that add nodes; a size trace records their calls."""
        cls.load_op_methods()
        declared: frozenset[str] = vars(cls)["_builder_names"]
        return declared | cls._op_methods

"""Methods of Graph from op records and families, for editors and checkers.

Written from them by `python -m tests.graph_method_stub`.
"""

from collections.abc import Sequence
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.op_methods import LoadsOpMethods
from rlxweb.ir.tensor import Axes
from rlxweb.ir.tensor import Operand
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.tensor import TensorLike
from rlxweb.ops.conv.methods import SpatialSizes
from rlxweb.ops.layout.methods import SliceBounds
from rlxweb.ops.layout.pad_tile_roll_methods import PadWidths
from typing import Any

class GraphMethods(metaclass=LoadsOpMethods):
    _op_methods: frozenset[str]
    def abs(self, x: Tensor) -> Tensor:
        """The absolute value of x."""
    def acos(self, x: Tensor) -> Tensor:
        """The arc cosine; NaN outside -1 … 1."""
    def acosh(self, x: Tensor) -> Tensor:
        """The inverse hyperbolic cosine; NaN below 1."""
    def add(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x + y; integers wrap."""
    def add_layer_norm(
        self,
        x: Tensor,
        residual: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        eps: float = 1e-05,
    ) -> tuple[Tensor, Tensor]:
        """Return (layer norm of x + residual along the last axis, the sum): one kernel.

        Shapes   x and residual alike, [..., n], gamma and beta [n], or None: 1 and 0
        Errors   ShapeError, DTypeError, AttributeRefused
        """
    def add_rms_norm(
        self,
        x: Tensor,
        residual: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        eps: float = 1e-05,
    ) -> tuple[Tensor, Tensor]:
        """Return `add_layer_norm` with the RMS norm, which does not subtract the mean."""
    def affine_grid(
        self, theta: Tensor, size: Sequence[int], align_corners: bool = False
    ) -> Tensor:
        """Return the grid [N, places…, axes] of affine maps [N, axes, axes + 1], for a
        result of `size` [N, C, places…]. Errors  ShapeError, DTypeError.
        """
    def all(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """Test if all elements are true (numbers: not 0); True for no elements."""
    def any(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """Test if any element is true (a number: not 0); False for no elements."""
    def arange(
        self,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """Return the numbers from start to before stop, as numpy.arange.

        One number is the stop, and the start is 0 then.
        dtype   None: i32 of ints, f32 where one is a float
        Errors  AttributeRefused for a step of 0; DTypeError for numbers the type has
        not.
        """
    def argmax(
        self,
        x: Tensor,
        axis: int | None = None,
        keepdims: bool = False,
        select_last_index: bool = False,
    ) -> Tensor:
        """Return the index (i32) of the largest element, as numpy.argmax: the first of
        equal ones, and of NaN.

        axis               None: of all elements in their order
        keepdims           the axis stays, with one element
        select_last_index  the last of equal ones, as ONNX may ask
        Errors   ShapeError for an axis of no elements.
        """
    def argmin(
        self,
        x: Tensor,
        axis: int | None = None,
        keepdims: bool = False,
        select_last_index: bool = False,
    ) -> Tensor:
        """Return the index (i32) of the smallest element; see `argmax`."""
    def argsort(
        self, x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """Return the indices (i32) that sort the elements along an axis.

        Equal values keep their order whether or not `stable` asks for it, and NaN comes
        after every number, both ways. False is below True. Errors  ShapeError.
        """
    def asin(self, x: Tensor) -> Tensor:
        """The arc sine; NaN outside -1 … 1."""
    def asinh(self, x: Tensor) -> Tensor:
        """The inverse hyperbolic sine."""
    def atan(self, x: Tensor) -> Tensor:
        """The arc tangent."""
    def atan2(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The angle of the point (x = second operand, y = first operand), from -pi to
        pi.
        """
    def atanh(self, x: Tensor) -> Tensor:
        """The inverse hyperbolic tangent; infinite at 1 and -1, NaN outside."""
    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        num_heads: int,
        head_dim: int,
        mask_kind: str = "none",
        window: int = 0,
        offset: int | None = None,
        score_scale: float | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """Apply scaled dot-product attention; `mask` belongs to mask_kind "custom" and
        "bias".

        window   keys before its own that a query sees under "sliding_window"; with 0,
                 its own key alone
        offset   the key at which the first query stands, for masks by position; left
                 out, the last query stands at the last key
        """
    def avg_pool(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Tensor:
        """Return the mean of each window of [N, C, …], its padding zeros that count or
        not.
        """
    def avg_pool1d(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Tensor:
        """Return the mean of each window of [N, C, …], its padding zeros that count or
        not.
        """
    def avg_pool2d(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Tensor:
        """Return the mean of each window of [N, C, …], its padding zeros that count or
        not.
        """
    def avg_pool3d(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Tensor:
        """Return the mean of each window of [N, C, …], its padding zeros that count or
        not.
        """
    def batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-05,
    ) -> Tensor:
        """Return (x - mean) / sqrt(var + eps) · weight + bias with one number of each
        per channel.

        What it is at inference: [N, C, …] and vectors of C elements.
        Errors   ShapeError, DTypeError.
        """
    def batch_statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (divided by n, not n - 1) of each channel of [N, C,
        …], which `batch_norm` takes during training.
        """
    def bitcast(self, x: Tensor, to: DTypeLike) -> Tensor:
        """The bits of each number reinterpreted as another dtype of the same size, 4 or
        8 bytes.
        """
    def bitwise_and(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x & y, bit by bit; for integers and bool."""
    def bitwise_not(self, x: Tensor) -> Tensor:
        """~x: every bit inverted; for integers and bool."""
    def bitwise_or(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x | y, bit by bit; for integers and bool."""
    def bitwise_xor(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x ^ y, bit by bit; for integers and bool."""
    def broadcast_to(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Broadcast x to exactly this shape, as NumPy's. Errors  ShapeError.

        `expand` broadcasts both ways, so that a 1 in its shape leaves an axis alone.
        """
    def bucketize(self, x: Tensor, boundaries: Tensor, right: bool = False) -> Tensor:
        """Return the index (i32) of the bucket between sorted boundaries [n] of each
        element.

        As PyTorch's: a boundary is in the bucket that it ends, with `right` in the one
        that it begins. NumPy's digitize has it the other way round.
        """
    def cast(self, x: Tensor, dtype: DTypeLike) -> Tensor:
        """Return x in another dtype."""
    def causal_conv1d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Weight each channel's last K values; return (y, the state for the next call).

        Shapes   x [B, L, D], weight [D, K], bias [D], state [B, K - 1, D] (what came
                 before x; zeros where it is left out) → [B, L, D] and [B, K - 1, D]
        Errors   ShapeError, DTypeError
        Source   the convolution of Mamba's blocks; ONNX's CausalConvWithState
        """
    def ceil(self, x: Tensor) -> Tensor:
        """The nearest integer not below x."""
    def celu(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x where x > 0, else alpha (exp(x / alpha) - 1)."""
    def center_crop_pad(
        self, x: Tensor, shape: Axes, axes: Axes | None = None, value: float = 0.0
    ) -> Tensor:
        """Crop or pad some axes around their middle to the given lengths.

        Where what is added or taken is odd the larger half is at the end, as ONNX has
        it. axes  None: all. Errors  ShapeError.
        """
    def cholesky(self, a: Tensor, *, upper: bool = False) -> Tensor:
        """Return the lower triangle L of L · Lᵀ = a for symmetric positive definite
        matrices; as in numpy.linalg.cholesky only the lower half is read.

        A matrix that is not positive definite, where NumPy raises LinAlgError, gives
        NaN everywhere; the others of a batch are right all the same.
        Shapes   a [..., n, n] → [..., n, n]
        upper    read the upper half, and give Lᵀ
        Errors   ShapeError, DTypeError
        """
    def clamp(
        self, x: Tensor, min: TensorLike | None = None, max: TensorLike | None = None
    ) -> Tensor:
        """Limit values to at least `min` and at most `max`; None stands for no such bound.

        Bounds broadcast. Where they cross it is `max`, as in NumPy; NaN stays NaN.
        Errors   GraphError where x is no tensor, DTypeError for a bound of another
        type.
        """
    def clip(
        self, x: Tensor, min: TensorLike | None = None, max: TensorLike | None = None
    ) -> Tensor:
        """Limit values to at least `min` and at most `max`; None stands for no such bound.

        Bounds broadcast. Where they cross it is `max`, as in NumPy; NaN stays NaN.
        Errors   GraphError where x is no tensor, DTypeError for a bound of another
        type.
        """
    def compress(
        self, condition: Tensor | Operand, x: Tensor, axis: int | None = None
    ) -> Tensor:
        """Select the elements of an axis for which a condition [n] holds, as
        numpy.compress.

        axis   None: of the elements in their order. One that is shorter takes none of
               the rest.

        Errors   Unsupported for a condition that is computed: how many elements that
        are shows when the graph is run. ShapeError, DTypeError.
        """
    def concat(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Join tensors along an axis."""
    def conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes | str = 0,
        dilation: SpatialSizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve [N, C, …] with weights [M, C / groups, …]: [N, M, …].

        padding   zeros at both ends of each axis, one number for all or one each;
                  "same": as many results as elements, with stride 1; "valid": none
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def conv1d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes | str = 0,
        dilation: SpatialSizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve [N, C, …] with weights [M, C / groups, …]: [N, M, …].

        padding   zeros at both ends of each axis, one number for all or one each;
                  "same": as many results as elements, with stride 1; "valid": none
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def conv2d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes | str = 0,
        dilation: SpatialSizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve [N, C, …] with weights [M, C / groups, …]: [N, M, …].

        padding   zeros at both ends of each axis, one number for all or one each;
                  "same": as many results as elements, with stride 1; "valid": none
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def conv3d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes | str = 0,
        dilation: SpatialSizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve [N, C, …] with weights [M, C / groups, …]: [N, M, …].

        padding   zeros at both ends of each axis, one number for all or one each;
                  "same": as many results as elements, with stride 1; "valid": none
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def conv_integer(
        self,
        x: Tensor,
        weight: Tensor,
        x_zero_point: TensorLike | None = None,
        w_zero_point: TensorLike | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes = 0,
        dilation: SpatialSizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Return `conv` of integers less their zero points, exactly, as i32.

        Shapes   x [N, C, …], weight [M, C / groups, …] → [N, M, …]; x_zero_point is one
                 number, w_zero_point one or [M]
        Errors   ShapeError, DTypeError, AttributeRefused
        Source   ONNX, ConvInteger: what is padded is x_zero_point
        """
    def conv_transpose(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes = 0,
        output_padding: SpatialSizes = 0,
        groups: int = 1,
        dilation: SpatialSizes = 1,
    ) -> Tensor:
        """Return the transposed convolution of [N, C, …] with weights [C, M / groups, …].

        padding          results left out at both ends of each axis
        output_padding   results more at the end of each axis
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def conv_transpose1d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes = 0,
        output_padding: SpatialSizes = 0,
        groups: int = 1,
        dilation: SpatialSizes = 1,
    ) -> Tensor:
        """Return the transposed convolution of [N, C, …] with weights [C, M / groups, …].

        padding          results left out at both ends of each axis
        output_padding   results more at the end of each axis
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def conv_transpose2d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes = 0,
        output_padding: SpatialSizes = 0,
        groups: int = 1,
        dilation: SpatialSizes = 1,
    ) -> Tensor:
        """Return the transposed convolution of [N, C, …] with weights [C, M / groups, …].

        padding          results left out at both ends of each axis
        output_padding   results more at the end of each axis
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def conv_transpose3d(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes = 0,
        output_padding: SpatialSizes = 0,
        groups: int = 1,
        dilation: SpatialSizes = 1,
    ) -> Tensor:
        """Return the transposed convolution of [N, C, …] with weights [C, M / groups, …].

        padding          results left out at both ends of each axis
        output_padding   results more at the end of each axis
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def cos(self, x: Tensor) -> Tensor:
        """The cosine; NaN at infinity."""
    def cosh(self, x: Tensor) -> Tensor:
        """The hyperbolic cosine."""
    def count_nonzero(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """Count the elements that are not 0 (i32), as numpy.count_nonzero."""
    def cumprod(
        self, x: Tensor, axis: int = -1, exclusive: bool = False, reverse: bool = False
    ) -> Tensor:
        """Return running products along an axis. `exclusive` leaves each element's own
        value out; `reverse` starts at the end of the axis.
        """
    def cumsum(
        self, x: Tensor, axis: int = -1, exclusive: bool = False, reverse: bool = False
    ) -> Tensor:
        """Return running sums along an axis; `exclusive` leaves out each element's own
        value, `reverse` starts at the end of the axis.
        """
    def deform_conv2d(
        self,
        x: Tensor,
        offset: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: SpatialSizes = 1,
        padding: SpatialSizes = 0,
        dilation: SpatialSizes = 1,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return a convolution whose taps are moved by offsets, as torchvision's.

        x        [N, C, H, W]
        offset   [N, 2·offset_groups·h·w, …]: how far down and across each tap is moved
        weight   [O, C/groups, h, w]
        bias     [O]
        mask     [N, offset_groups·h·w, …]: what each tap counts

        The groups follow from the shapes. Errors  ShapeError, AttributeRefused.
        """
    def depth_to_space(self, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
        """Move channels into blocks of pixels: [N, C, H, W] → [N, C/b², H·b, W·b], as
        ONNX's DepthToSpace.

        mode   "DCR": the block's place is the slow part of the channel; "CRD": the
               fast one, as PyTorch's pixel_shuffle

        Errors   ShapeError.
        """
    def dequantize(
        self,
        w: Tensor,
        scales: Tensor,
        biases: Tensor | None = None,
        group_size: int = 64,
        bits: int = 4,
    ) -> Tensor:
        """Unpack weights to floats [..., K] in the dtype of the scales.

        w, scales, biases   as those of `quantized_matmul`, or some rows of them; K is
                            all that w holds
        Errors              ShapeError, DTypeError, AttributeRefused
        """
    def dequantize_linear(
        self,
        x: Tensor,
        scale: TensorLike,
        zero_point: TensorLike | None = None,
        axis: int = 1,
        block_size: int = 0,
    ) -> Tensor:
        """Return (x - zero_point) · scale in the dtype of the scale; other parameters
        as in `quantize_linear`. A scale that is no tensor is f32.

        Errors   ShapeError, DTypeError, AttributeRefused
        Source   ONNX, DequantizeLinear
        """
    def det(self, a: Tensor) -> Tensor:
        """Return the determinants [...] of matrices [..., n, n]. Errors  ShapeError."""
    def diagonal(
        self, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
    ) -> Tensor:
        """Return the elements at [i, i + offset] of two axes as the last axis: a view
        of a dense tensor, as numpy.diagonal. Errors  ShapeError.
        """
    def dilate(
        self, x: Tensor, steps: Axes, axes: Axes | None = None, value: float = 0.0
    ) -> Tensor:
        """Insert `step` - 1 times `value` between neighbours along some axes, the last
        ones when `axes` is None. Errors  ShapeError, AttributeRefused.
        """
    def div(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x / y. Integers truncate toward zero; an integer divided by 0 gives 0."""
    def dot(self, x: TensorLike, y: TensorLike) -> Tensor:
        """Sum products over the last axis of x and the last but one (or only) axis of
        y, as numpy.dot.

        Of numbers it is their product. `matmul` is what pairs batches.
        """
    def dynamic_quantize_linear(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (x as u8, its scale, its zero point u8) for the range of x, extended
        to contain 0.

        The scale is (max - min) / 255, and 1 where x is 0 everywhere.
        Errors   DTypeError
        Source   ONNX, DynamicQuantizeLinear
        """
    def einsum(self, subscripts: str, *operands: TensorLike) -> Tensor:
        """Sum products by labels of axes, as numpy.einsum: "bij,bjk->bik".

        subscripts  letters for the axes of each operand, "..." for any number of them,
                    which broadcast; without "->" the result has the labels that stand
                    once, in alphabetical order, behind the "..."
        operands    tensors, and arrays beside them

        A label that an operand has twice is its diagonal; one that the result has not
        is summed, "..." too. Of many operands the cheapest order is taken.
        Errors   AttributeRefused, ShapeError, DTypeError.
        """
    def elu(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x where x > 0, else alpha (exp(x) - 1)."""
    def eq(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x == y, as bool; False if either is NaN."""
    def erf(self, x: Tensor) -> Tensor:
        """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    def exp(self, x: Tensor) -> Tensor:
        """e to the power x. WGSL guarantees an error of at most 3 + 2 |x| ULP."""
    def exp2(self, x: Tensor) -> Tensor:
        """2 to the power x."""
    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Broadcast x with a shape; -1 and 1 leave an axis unchanged."""
    def expand_dims(self, x: Tensor, axes: Axes) -> Tensor:
        """Insert axes of size 1 at these positions of the result; a view.

        Errors   ShapeError.
        """
    def expm1(self, x: Tensor) -> Tensor:
        """e to the power x, minus 1; accurate near 0."""
    def eye(
        self, n: int, m: int | None = None, k: int = 0, dtype: DTypeLike = "f32"
    ) -> Tensor:
        """Return a matrix of n rows and m columns with 1 on the k-th diagonal and 0
        elsewhere, as numpy.eye.
        """
    def fft(
        self, x: Tensor, inverse: bool = False, norm: str | None = "backward"
    ) -> Tensor:
        """Return the complex FFT of the last axis, block layout [..., 2N] → [..., 2N],
        any N.

        norm   NumPy's names, None as there for "backward": the inverse divides by N,
               so that `g.fft(g.fft(x), True)` is x. "none" divides nowhere, as RLX's
               `fft`, where that is N · x
        """
    def fftfreq(self, n: int, d: float = 1.0) -> Tensor:
        """Return the bin frequencies [n] as a constant, as numpy.fft.fftfreq."""
    def flatten(self, x: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Merge the axes from `start_axis` to `end_axis` into one, as PyTorch's; a
        view.
        """
    def flip(self, x: Tensor, axes: Axes | None = None) -> Tensor:
        """Reverse the order of elements along axes, along all of them for None; a view."""
    def floor(self, x: Tensor) -> Tensor:
        """The nearest integer not above x."""
    def floor_divide(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The largest integer not above x / y. A divisor of 0 gives 0 for integers and
        x / 0 for floats.
        """
    def fmod(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The remainder of the division truncated toward 0, with the sign of x, like
        C's fmod; a divisor of 0 gives 0 for integers and NaN for floats.
        """
    def fold(
        self,
        x: Tensor,
        output_size: SpatialSizes,
        kernel_size: SpatialSizes,
        dilation: SpatialSizes = 1,
        padding: SpatialSizes = 0,
        stride: SpatialSizes = 1,
    ) -> Tensor:
        """Sum windows [N, C · window, windows] at their positions in images [N, C, …],
        as torch.nn.functional.fold; ONNX calls it Col2Im.

        output_size  of an image, a number for each spatial axis
        padding      what windows reach beyond an image at both ends of each axis: one
                     number for all, one each, or the fronts' and then the ends'
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def frame(self, x: Tensor, length: int, hop: int, count: int = 0) -> Tensor:
        """Return overlapping frames [..., count, length] of the last axis, a view.

        `count` 0 takes all 1 + (T - length) // hop of them.
        """
    def full(self, shape: Axes, value: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Return a tensor with one number everywhere, also that of a tensor; a view of it.

        dtype   None: the number's own, f32 for a Python float and i32 for an int
        Errors  ShapeError for more than one number, DTypeError.
        """
    def full_like(
        self, x: Tensor, value: Any, dtype: DTypeLike | None = None
    ) -> Tensor:
        """Return one number in the shape of x, and in its dtype unless another is
        named.
        """
    def fused_matmul_bias_act(
        self, x: Tensor, w: Tensor, bias: Tensor, activation: str | None = None
    ) -> Tensor:
        """Return activation(x @ w + bias), as one op."""
    def gather(self, table: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """Select entries of `table` along an axis, as np.take: `table.dims[:axis] ++
        indices.dims ++ table.dims[axis+1:]`.

        Negative indices count from the end. Errors  IndexRefused when it is run.
        """
    def gather_elements(self, x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """Pick an element of an axis for each index, as PyTorch's gather and ONNX's
        GatherElements.

        The other axes of the indices may be shorter than those of `x`: of these the
        first elements are used. Negative indices count from the end.
        Errors   IndexRefused when it is run; ShapeError, DTypeError.
        """
    def gather_nd(self, x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
        """Gather rows by indices of several axes, which the last axis of `indices` holds.

        As ONNX's GatherND and TensorFlow's. Errors  IndexRefused when it is run.
        """
    def ge(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x >= y, as bool; False if either is NaN."""
    def gelu(self, x: Tensor) -> Tensor:
        """x times the standard normal cumulative distribution function of x (the exact
        form, computed with erf).
        """
    def gelu_approx(self, x: Tensor) -> Tensor:
        """The tanh approximation of gelu: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
        x^3))).
        """
    def glu(
        self,
        x: Tensor,
        axis: int = -1,
        activation: str = "sigmoid",
        gate_first: bool = False,
    ) -> Tensor:
        """Return the first half of an axis times activation(the second half).

        activation   "sigmoid", "silu", "gelu", "gelu_approx", "relu", "tanh" or
                     "identity"
        gate_first   the first half is the one that goes through it
        Errors   ShapeError for an odd axis, DTypeError, AttributeRefused
        Source   torch.nn.functional.glu; Shazeer 2020
        """
    def grid_sample(
        self,
        x: Tensor,
        grid: Tensor,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Tensor:
        """Sample [N, C, …] at the points of a grid [N, places…, axes]: [N, C, places…].

        grid           coordinates from -1 to 1, the last axis first
        mode           "bilinear" (also "linear", "trilinear"), "nearest", "bicubic"
        padding_mode   "zeros", "border" or "reflection"
        align_corners  -1 and 1 are the middles of the outer elements, not their edges
        Errors   AttributeRefused, ShapeError, DTypeError.
        """
    def group_norm(
        self,
        x: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-05,
    ) -> Tensor:
        """Normalize each group of channels of [N, C, …] over all its elements, then
        apply · weight + bias for each channel.

        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def grouped_matmul(
        self,
        x: Tensor,
        w: Tensor,
        groups: Tensor | None = None,
        *,
        offsets: Tensor | None = None,
        sizes: Tensor | None = None,
    ) -> Tensor:
        """Multiply every row by the matrix of its group, as mixture-of-experts layers
        do. Exactly one of these is given:

        groups    a group for each row, [M] of integers, in any order
        offsets   where each group of rows ends, [G], as torch.nn.functional.grouped_mm
        sizes     how many rows each group has, [G], as jax.lax.ragged_dot
        A row of no group (outside 0 … G - 1, or behind the last one's end) is zeros.
        Shapes   x [M, K], w [G, K, N] → [M, N]
        Errors   ShapeError, DTypeError, AttributeRefused
        """
    def gru(
        self,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        state: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        direction: str = "forward",
        activations: str = "sigmoid tanh",
        clip: float | None = None,
        linear_before_reset: bool = False,
        batch_first: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Run gated recurrent units over a sequence, as `lstm`; return (steps, last h).

        linear_before_reset   the reset gate multiplies h · r, as in PyTorch, not h
        Shapes   w [D, 3·H, I], r [D, 3·H, H], b [D, 6·H], state [D, B, H]
        Source   ONNX's GRU
        """
    def gt(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x > y, as bool; False if either is NaN."""
    def hard_sigmoid(self, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
        """alpha x + beta, clamped to 0 … 1."""
    def hard_swish(self, x: Tensor) -> Tensor:
        """x times hard_sigmoid(x, 1/6, 1/2)."""
    def hardmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """Return 1 at the largest element of an axis, the first of equal ones, and 0
        elsewhere.
        """
    def ifft(self, x: Tensor, norm: str | None = "backward") -> Tensor:
        """Return the inverse `fft`, as numpy.fft.ifft."""
    def inner(self, x: TensorLike, y: TensorLike) -> Tensor:
        """Sum products over the last axis of both operands, as numpy.inner."""
    def instance_norm(
        self,
        x: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-05,
    ) -> Tensor:
        """Normalize each channel by itself: `group_norm` with one channel per group."""
    def interpolate(
        self,
        x: Tensor,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        antialias: bool = False,
    ) -> Tensor:
        """Resize the spatial axes of [N, C, …] to `size`, or by `scale_factor`.

        mode           "nearest", "nearest-exact", "linear" ("bilinear" and "trilinear"
                       are the same), "bicubic" for any number of axes
        align_corners  the outer elements lie on the outer ones of the result
        antialias      smoothed where it shrinks; of linear and bicubic

        Where a factor leaves a length as it is, PyTorch copies: linear, smoothed and
        two-dimensional nearest modes do so; two-dimensional "nearest" that doubles a
        length takes each element twice. Other modes follow the factor.

        Errors   AttributeRefused, ShapeError.
        """
    def inv(self, a: Tensor) -> Tensor:
        """Return the inverses of matrices [..., n, n]; all NaN for a singular one.

        Errors   ShapeError, DTypeError. To multiply by one use `solve`.
        """
    def inv_std(self, x: Tensor, axis: Axes = -1, eps: float = 1e-05) -> Tensor:
        """Return 1 / sqrt(variance + eps) along axes, which are kept with one element
        each.
        """
    def irfft(
        self, re: Tensor, im: Tensor, n: int, norm: str | None = "backward"
    ) -> Tensor:
        """Return the real rows [..., n] of a half spectrum, as numpy.fft.irfft."""
    def isfinite(self, x: Tensor) -> Tensor:
        """Whether x is neither infinite nor NaN."""
    def isinf(self, x: Tensor, positive: bool = True, negative: bool = True) -> Tensor:
        """Whether x is infinity or -infinity; positive=False excludes infinity,
        negative=False excludes -infinity.
        """
    def isnan(self, x: Tensor) -> Tensor:
        """Whether x is NaN."""
    def layer_norm(
        self,
        x: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        axis: Axes = -1,
        eps: float = 1e-05,
    ) -> Tensor:
        """Return (x - mean) / sqrt(variance + eps) · gamma + beta along one axis or
        several.

        gamma, beta   of the shape of those axes, or what broadcasts to it; None: 1, 0
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
    def le(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x <= y, as bool; False if either is NaN."""
    def leaky_relu(self, x: Tensor, alpha: float = 0.01) -> Tensor:
        """x where x > 0, else alpha x."""
    def linspace(
        self,
        start: float,
        stop: float,
        num: int = 50,
        endpoint: bool = True,
        dtype: DTypeLike = "f32",
    ) -> Tensor:
        """Return `num` evenly spaced numbers from start to stop, as numpy.linspace."""
    def local_response_norm(
        self,
        x: Tensor,
        size: int,
        alpha: float = 0.0001,
        beta: float = 0.75,
        k: float = 1.0,
        before: int | None = None,
    ) -> Tensor:
        """Return x / (k + alpha · mean of x² over `size` channels around each)^beta.

        before   channels of the window in front of its own; None: size // 2, as
                 PyTorch has it
        """
    def log(self, x: Tensor) -> Tensor:
        """The natural logarithm: -infinity at 0, NaN for a negative x."""
    def log10(self, x: Tensor) -> Tensor:
        """Return the logarithm to base 10."""
    def log1p(self, x: Tensor) -> Tensor:
        """log(1 + x), accurate near 0; -infinity at -1, NaN below -1."""
    def log2(self, x: Tensor) -> Tensor:
        """The logarithm to base 2: -infinity at 0, NaN for a negative x."""
    def log_mel(self, spectrum: Tensor, filters: Tensor) -> Tensor:
        """Return the Whisper-style log-mel spectrum [..., M] of a block spectrum [...,
        2N].
        """
    def log_mel_backward(
        self, spectrum: Tensor, filters: Tensor, grad: Tensor
    ) -> Tensor:
        """Return the gradient of `log_mel` with respect to the spectrum."""
    def log_sigmoid(self, x: Tensor) -> Tensor:
        """Return the logarithm of sigmoid(x)."""
    def log_softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """x - max - log(sum(exp(x - max))) along an axis: the logarithm of softmax,
        finite even where softmax underflows to 0.
        """
    def logical_and(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether both operands are true; for bool operands."""
    def logical_not(self, x: Tensor) -> Tensor:
        """Whether x is false; for bool operands."""
    def logical_or(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether at least one operand is true; for bool operands."""
    def logical_xor(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether exactly one operand is true; for bool operands."""
    def logsumexp(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """Return log(sum(exp(x))) without overflow or underflow; -infinity for no elements.

        Errors   DTypeError unless they are floats; ShapeError.
        """
    def lora_matmul(
        self, x: Tensor, w: Tensor, a: Tensor, b: Tensor, scale: float = 1.0
    ) -> Tensor:
        """Multiply by weights with a low-rank update: x · w + scale · (x · a) · b.

        Shapes   x [..., K], w [K, N], a [K, R], b [R, N] → [..., N]
        Errors   ShapeError, DTypeError, AttributeRefused
        Source   Hu et al. 2021
        """
    def lp_pool(
        self,
        x: Tensor,
        norm_type: float,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return (sum of |x|ᵖ)^(1/p) of each window of [N, C, …]; p is `norm_type`.

        A window of zeros has slope 0, as in PyTorch.
        """
    def lp_pool1d(
        self,
        x: Tensor,
        norm_type: float,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return (sum of |x|ᵖ)^(1/p) of each window of [N, C, …]; p is `norm_type`.

        A window of zeros has slope 0, as in PyTorch.
        """
    def lp_pool2d(
        self,
        x: Tensor,
        norm_type: float,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return (sum of |x|ᵖ)^(1/p) of each window of [N, C, …]; p is `norm_type`.

        A window of zeros has slope 0, as in PyTorch.
        """
    def lp_pool3d(
        self,
        x: Tensor,
        norm_type: float,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return (sum of |x|ᵖ)^(1/p) of each window of [N, C, …]; p is `norm_type`.

        A window of zeros has slope 0, as in PyTorch.
        """
    def lstm(
        self,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        state: tuple[Tensor, Tensor] | None = None,
        peepholes: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        direction: str = "forward",
        activations: str = "sigmoid tanh tanh",
        clip: float | None = None,
        input_forget: bool = False,
        quantized_state: bool = False,
        batch_first: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run a long short-term memory over a sequence; return (steps, last h, last c).

        quantized_state   products take h in 8 bits, of each row's own range
        Shapes   x [T, B, I], w [D, 4·H, I], r [D, 4·H, H], b [D, 8·H], state (h0, c0)
                 each [D, B, H], peepholes [D, 3·H], lengths [B] of integers → steps
                 [T, D, B, H], h and c [D, B, H]. batch_first, as ONNX's layout 1:
                 x [B, T, I], state [B, D, H] → [B, T, D, H], [B, D, H]
        Errors   ShapeError, DTypeError, AttributeRefused
        Source   ONNX's LSTM
        """
    def lt(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x < y, as bool; False if either is NaN."""
    def matmul(self, x: TensorLike, y: TensorLike) -> Tensor:
        """Return the product of matrices or of batches of them, as numpy.matmul.

        A vector on the left is a row, one on the right a column, whose axis goes again.
        Errors   ShapeError, DTypeError.
        """
    def matmul_integer(
        self,
        x: Tensor,
        y: Tensor,
        x_zero_point: TensorLike | None = None,
        y_zero_point: TensorLike | None = None,
    ) -> Tensor:
        """Return (x - x_zero_point) · (y - y_zero_point), exactly, as i32.

        Shapes   x [..., M, K], y [..., K, N] → [..., M, N]; zero points are one number,
                 [M] for the rows of x and [N] for the columns of y, or broadcast with
                 x and y
        Errors   ShapeError, DTypeError for other than integers of up to 32 bits
        Source   ONNX, MatMulInteger; sums beyond 32 bits wrap
        """
    def max(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """The largest element over axes (at least one element is required); for bool,
        whether any is true.
        """
    def max_pool(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        dilation: SpatialSizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return the largest element of each window; the stride is the kernel size by
        default.
        """
    def max_pool1d(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        dilation: SpatialSizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return the largest element of each window; the stride is the kernel size by
        default.
        """
    def max_pool2d(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        dilation: SpatialSizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return the largest element of each window; the stride is the kernel size by
        default.
        """
    def max_pool3d(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        dilation: SpatialSizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return the largest element of each window; the stride is the kernel size by
        default.
        """
    def max_pool_indices(
        self,
        x: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        dilation: SpatialSizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """Return the indices of `max_pool`'s elements: i32, flat over the spatial axes
        of an image.
        """
    def max_unpool(
        self,
        x: Tensor,
        indices: Tensor,
        kernel_size: SpatialSizes,
        stride: SpatialSizes | None = None,
        padding: SpatialSizes = 0,
        output_size: SpatialSizes | None = None,
    ) -> Tensor:
        """Put the results of a max_pool back at the `indices` that max_pool_indices
        gives, and zeros elsewhere, as torch.nn.functional.max_unpool2d. The last of
        several at one index wins.

        Shapes   x and indices [N, C, …] → [N, C, *output_size]; that is the least size
                 that the windows reach over unless told
        Errors   IndexRefused when it is run; ShapeError, AttributeRefused, DTypeError.
        """
    def maximum(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The larger of x and y; NaN if either is NaN."""
    def mean(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """The mean over axes; floats only, and at least one element is required."""
    def min(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """The smallest element over axes (at least one element is required); for bool,
        whether all are true.
        """
    def minimum(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The smaller of x and y; NaN if either is NaN."""
    def mish(self, x: Tensor) -> Tensor:
        """x times tanh(softplus(x))."""
    def mod(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """The remainder of x // y, with the sign of y, like Python's %; a divisor of 0
        gives 0 for integers and NaN for floats.
        """
    def moveaxis(self, x: Tensor, source: Axes, destination: Axes) -> Tensor:
        """Move axes to other positions, the rest in their order, as NumPy's; a view."""
    def mul(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x * y; integers wrap."""
    def narrow(self, x: Tensor, axis: int, start: int, length: int) -> Tensor:
        """Return `length` entries of x along an axis, from `start` on."""
    def ne(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """Whether x != y, as bool; True if either is NaN."""
    def neg(self, x: Tensor) -> Tensor:
        """-x."""
    def nms(
        self,
        boxes: Tensor,
        scores: Tensor,
        iou_threshold: float = 0.5,
        max_output: int | None = None,
        score_threshold: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the indices of the boxes that non-maximum suppression keeps, and their
        number.

        boxes            [n, 4], two opposite corners each
        scores           [n]; with classes [C, n], each of which is suppressed apart
        iou_threshold    what a box may share, of what both cover, with one of a higher
                         score
        max_output       how many are kept at most (of a class); None: n
        score_threshold  what scores have to be above; None: any number will do

        → places [max_output or n], or [C, …], and counts [] or [C], all i32; behind the
        last place stands -1. As torchvision's nms; of equal scores the smaller place is
        first, and NaN is no score. Errors  ShapeError, AttributeRefused.
        """
    def nonzero(
        self, x: Tensor, size: int | None = None, fill_value: int = -1
    ) -> tuple[Tensor, Tensor]:
        """Return the indices of the nonzero elements, and their count.

        size   of how many the places are given; None: of all that there could be

        [...] → places [rank, size] and a count, both i32. The places are those of
        numpy.nonzero, an axis a row, in the order of the elements; behind the last
        stands `fill_value`. Where there are more than `size`, the first are given and
        the count, which is of all of them, says so.
        Errors   ShapeError, AttributeRefused.
        """
    def norm(
        self,
        x: Tensor,
        p: float = 2.0,
        axes: Axes | None = None,
        keep_dim: bool = False,
    ) -> Tensor:
        """Return the p-norm (sum of |x|^p)^(1 / p) of the elements over axes.

        p   any number: of 0 how many are not 0, of infinity the largest |x|, of
            -infinity the least; PyTorch's linalg.vector_norm

        The slope is 0 where all elements are 0, as in PyTorch, and |x|^p has slope 0
        at 0 for every p.

        Errors   AttributeRefused for NaN; ShapeError; DTypeError unless of floats.
        """
    def normalize(
        self, x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12
    ) -> Tensor:
        """Return x / max(p-norm, eps) along an axis.

        p   > 0; of infinity the norm is the largest |x|

        A line of zeros stays zeros, and its slope is 1 / eps, as in PyTorch.
        Errors   AttributeRefused, ShapeError, DTypeError.
        """
    def one_hot(
        self,
        indices: Tensor,
        num_classes: int,
        on_value: TensorLike = 1,
        off_value: TensorLike = 0,
        axis: int = -1,
        dtype: DTypeLike = "f32",
    ) -> Tensor:
        """Return a new axis with `on_value` at the position that an index names, else
        `off_value`.

        axis        where the new axis stands in the result
        on_value, off_value   numbers, or tensors of one each, which say the dtype

        A negative index counts from the end; of one outside no place is named, as in
        ONNX. Errors  DTypeError unless the indices are integers; ShapeError.
        """
    def ones(self, shape: Axes, dtype: DTypeLike = "f32") -> Tensor:
        """Return a tensor of ones."""
    def ones_like(self, x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
        """Return ones in the shape of x, and in its dtype unless another is named."""
    def outer(self, x: TensorLike, y: TensorLike) -> Tensor:
        """Return each element of x times each of y, [size of x, size of y], as
        numpy.outer.
        """
    def pad(
        self,
        x: Tensor,
        pad_width: PadWidths,
        mode: str = "constant",
        value: float = 0.0,
    ) -> Tensor:
        """Add elements around an array, as numpy.pad.

        pad_width  (before, after) for each axis, or one such pair or number for all;
                   negative ones take elements away
        mode       "constant" (of `value`), "reflect", "symmetric", "edge", "wrap"

        Errors   ShapeError, AttributeRefused; DTypeError for a value the type has not.
        """
    def pow(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x to the power y, for floats only, with the special cases of C's pow: x ** 0
        and 1 ** y are always 1, 0 to a negative power is infinity, and a finite
        negative x to a fractional power is NaN.
        """
    def prelu(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x where x > 0, else the second operand times x."""
    def prod(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """The product over axes; 1 if there are no elements. Integers wrap in their
        dtype.
        """
    def psd(self, re: Tensor, im: Tensor) -> Tensor:
        """Return (re² + im²) / F with F the length of the last axis, as RLX's psd."""
    def psd_real(self, x: Tensor) -> Tensor:
        """Return `psd` of `rfft`: divides by n // 2 + 1, no one-sided doubling."""
    def quantize_linear(
        self,
        x: Tensor,
        scale: TensorLike,
        zero_point: TensorLike | None = None,
        axis: int = 1,
        block_size: int = 0,
        dtype: DTypeLike | None = None,
        bits: int = 0,
    ) -> Tensor:
        """Return round(x / scale) + zero_point as integers, clipped to their range.

        scale       one number, [n] for the n places of `axis`, or with a `block_size`
                    x's shape with ceil(n / block_size) there
        zero_point  as scale, of the result's type; None: 0
        dtype       of the result, i8, u8, i16 or u16; None: zero_point's, or u8
        bits        of the range, 0: all that the type has; 4 of i8 are -8 … 7
        Errors      ShapeError, DTypeError, AttributeRefused
        Source      ONNX, QuantizeLinear; halves go to the even number

        Example  q = g.quantize_linear(x, 0.02, 128)
        """
    def quantized_matmul(
        self,
        x: Tensor,
        w: Tensor,
        scales: Tensor,
        biases: Tensor | None = None,
        transpose: bool = True,
        group_size: int = 64,
        bits: int = 4,
    ) -> Tensor:
        """Return the product x · wᵀ with a matrix whose weights stay packed, a few bits
        each.

        w          words i32 or u32 [N, W], as `rlxweb.quantize` and MLX make them: a
                   row's K weights, `bits` each, from the lowest bits on
        scales     of groups of `group_size` weights of a row, [N, G]
        biases     of the same; a weight is code · scale + bias. None: (code -
                   2^(bits - 1)) · scale
        transpose  False: x · w, for which the weights are unpacked whole at each run
        bits       2, 4 or 8
        Shapes     x [..., K] → [..., N], or [..., N] → [..., K] without `transpose`;
                   G = ceil(K / group_size), W = G · group_size · bits / 32
        Errors     ShapeError, DTypeError, AttributeRefused
        """
    def reciprocal(self, x: Tensor) -> Tensor:
        """1 / x; infinity at 0."""
    def relu(self, x: Tensor) -> Tensor:
        """The larger of x and 0."""
    def relu6(self, x: Tensor) -> Tensor:
        """Return values clipped to 0 and 6, with slope 0 at both ends."""
    def repeat(self, x: Tensor, repeats: Axes, axis: int | None = None) -> Tensor:
        """Repeat each element, as numpy.repeat and PyTorch's repeat_interleave.

        repeats  one count, or one for each element of the axis
        axis     None: of the elements in their order

        Errors   ShapeError, AttributeRefused.
        """
    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the elements of x, in row-major order, in another shape."""
    def resize_nearest_2x(self, x: Tensor) -> Tensor:
        """Repeat every element of the last two axes of [N, C, H, W]: [N, C, 2H, 2W].

        RLX's op; `interpolate(x, scale_factor=2)` is the same for any number of axes.
        Errors   ShapeError.
        """
    def reverse_sequence(
        self, x: Tensor, lengths: Tensor, axis: int = 0, batch_axis: int = 1
    ) -> Tensor:
        """Reverse the first `lengths[item]` elements of every item of a batch.

        As ONNX's and TensorFlow's. Lengths over the axis are refused when it is run,
        since they take elements from outside. Errors  IndexRefused; ShapeError.
        """
    def rfft(self, x: Tensor, norm: str | None = "backward") -> tuple[Tensor, Tensor]:
        """Return the spectrum of real rows [..., n] as (re, im), each [..., n // 2 +
        1].
        """
    def rfft_block(self, x: Tensor, norm: str | None = "backward") -> Tensor:
        """Return the spectrum of real rows [..., n] as one block [..., 2F], F = n // 2
        + 1.
        """
    def rfftfreq(self, n: int, d: float = 1.0) -> Tensor:
        """Return the bin frequencies [n // 2 + 1] as a constant, as numpy.fft.rfftfreq."""
    def rms_norm(
        self,
        x: Tensor,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        axis: Axes = -1,
        eps: float = 1e-05,
    ) -> Tensor:
        """Return x / sqrt(mean of x² + eps) · gamma + beta: layer norm without the
        mean.
        """
    def rnn(
        self,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        state: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        direction: str = "forward",
        activations: str = "tanh",
        clip: float | None = None,
        batch_first: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Run a plain recurrent network over a sequence, as `lstm`; return (steps, last h).

        Shapes   w [D, H, I], r [D, H, H], b [D, 2·H], state [D, B, H]
        Source   ONNX's RNN
        """
    def roi_align(
        self,
        x: Tensor,
        rois: Tensor,
        images: Tensor,
        output_size: int | Sequence[int],
        sampling_ratio: int = 0,
        spatial_scale: float = 1.0,
        aligned: bool = True,
        mode: str = "avg",
    ) -> Tensor:
        """Resample regions of images to one size: [R, C, *output_size].

        x               [N, C, H, W]
        rois            [R, 4]: x1 y1 x2 y2, times `spatial_scale` in elements of x
        images          [R] integers: which image each is of
        output_size     (height, width), or one number for both
        sampling_ratio  samples along each side of a bin; 0 and below: as many as it has
                        elements
        aligned         whether half an element is taken off, so that a place is where
                        an element's middle is; without, regions are 1 large at least
        mode            "avg", or "max" of each sample's weighted corners

        As torchvision's and ONNX's, whose defaults differ in `aligned`.
        Errors   IndexRefused when it is run; ShapeError, AttributeRefused, DTypeError.
        """
    def roll(self, x: Tensor, shift: Axes, axis: Axes | None = None) -> Tensor:
        """Shift elements cyclically along axes, as numpy.roll.

        axis     None: along the elements in their order. Errors  ShapeError.
        """
    def rope(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor | None = None,
        *,
        interleaved: bool = False,
        num_heads: int | None = None,
        head_dim: int | None = None,
    ) -> Tensor:
        """Apply rotary position embedding: rotate pairs of elements by the angle of
        their position.

        cos, sin     a table [P, R/2], whose row p is position p's; or [B, S, R/2], a
                     row for each place. R <= D elements are turned, the rest stays
        positions    of the places, [S] or [B, S] of integers: rows of the table. None:
                     its first S
        interleaved  pairs are neighbours (GPT-J), not halves (Llama, GPT-NeoX)
        num_heads    of x [B, S, H·D]
        head_dim     D, in place of num_heads: pyrlx's word
        Shapes   x [..., S, D], [B, H, S, D] or, with num_heads, [B, S, H·D]
        Errors   ShapeError, DTypeError, AttributeRefused; IndexRefused when it runs,
                 for a position outside the table
        Source   Su et al. 2021; ONNX's RotaryEmbedding
        """
    def rope_table(
        self, length: int, size: int, base: float = 10000.0, dtype: DTypeLike = "f32"
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [length, size/2] of positions 0 … for heads of `size`.

        Angle i of position p is p · base^(-2i / size), computed in float64.
        Errors   AttributeRefused.
        """
    def round(self, x: Tensor) -> Tensor:
        """x rounded to the nearest integer; halves round to even."""
    def round_divide(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x / y, rounded to the dtype of x and y and then to the nearest integer
        (halves to even); bit-identical to NumPy's round(x / y) on every device.
        """
    def rsqrt(self, x: Tensor) -> Tensor:
        """1 / sqrt(x); infinity at 0, NaN for a negative x."""
    def scaled_dot_product_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
        offset: int = 0,
        window: int | None = None,
    ) -> Tensor:
        """Return softmax(cap(scale · q · kᵀ) + mask) · v; a row with no visible key is 0.

        attn_mask  bool (true is seen) or added to the scores; it broadcasts to [..., L,
                   S]. Beside is_causal both hold
        is_causal  query i sees keys up to i + offset, where the first query stands
        window     and of those only the last `window` before its own; with is_causal
        scale      1 / sqrt(E) where it is left out
        Shapes     query [..., H, L, E], key [..., G, S, E], value [..., G, S, V] →
                   [..., H, L, V]; H is a multiple of G, whose heads are shared in
                   order. Without heads: [N, L, E], or [L, E]
        Errors     ShapeError, DTypeError, AttributeRefused
        Source     torch.nn.functional.scaled_dot_product_attention, with ONNX's window
        """
    def scatter_elements(
        self,
        x: Tensor,
        indices: Tensor,
        values: Tensor,
        axis: int = 0,
        reduction: str = "none",
    ) -> Tensor:
        """Return `x` with values written at indices of an axis, as ONNX's ScatterElements.

        reduction  "none": of several the last; "add", "mul", "max", "min": combined
                   with what is there

        The other axes of the indices may be shorter than those of `x`.
        Errors   IndexRefused when it is run; ShapeError, DTypeError.
        """
    def scatter_nd(
        self,
        x: Tensor,
        indices: Tensor,
        values: Tensor,
        reduction: str = "none",
        batch_dims: int = 0,
    ) -> Tensor:
        """Return `x` with rows written at the indices that the last axis of `indices`
        holds.

        See `scatter_elements` for the reductions. As ONNX's ScatterND.
        Errors   IndexRefused when it is run; ShapeError, DTypeError.
        """
    def searchsorted(
        self, a: Tensor, v: Tensor | Operand, side: str = "left"
    ) -> Tensor:
        """Return the insertion points (i32) of `v` in sorted rows `a`, as NumPy and
        PyTorch.

        a      [n] for values of any shape, or [..., n] for values [..., m]
        side   "left": before its equals, "right": behind them

        NaN is above every number. Rows that are not sorted give any places.
        Errors   ShapeError, DTypeError.
        """
    def selective_scan(
        self,
        x: Tensor,
        delta: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        d: Tensor | None = None,
        z: Tensor | None = None,
        delta_bias: Tensor | None = None,
        *,
        delta_softplus: bool = False,
        state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run Mamba's recurrence with rates of its own at every step; return (y, last
        state).

        h = exp(delta a) h + delta b x, then y = (c · h + d x) · silu(z); delta is
        softplus(delta + delta_bias), as far as either is wanted.
        Shapes   x, delta, z [B, L, D], a [D, N], b, c [B, L, N], d and delta_bias [D],
                 state [B, N, D] (zeros where it is left out) → [B, L, D] and [B, N, D]
        Errors   ShapeError, DTypeError
        Source   Gu and Dao 2023
        """
    def selu(
        self,
        x: Tensor,
        alpha: float = 1.6732631921768188,
        gamma: float = 1.0507010221481323,
    ) -> Tensor:
        """gamma times elu(x, alpha), which keeps the scale of a network's activations
        near 1.
        """
    def shift_left(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x << y; where y is negative or not below the number of bits, the result is 0."""
    def shift_right(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x >> y, keeping the sign; where y is negative or not below the number of
        bits, the result is 0, or -1 for a negative x.
        """
    def shrink(self, x: Tensor, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
        """x - bias where x > lambd, x + bias where x < -lambd, else 0: hard shrinkage
        with bias = 0, soft shrinkage with bias = lambd.
        """
    def sigmoid(self, x: Tensor) -> Tensor:
        """1 / (1 + exp(-x))."""
    def sign(self, x: Tensor) -> Tensor:
        """-1, 0 or 1 for x below, equal to or above 0; NaN for NaN."""
    def silu(self, x: Tensor) -> Tensor:
        """x times sigmoid(x)."""
    def sin(self, x: Tensor) -> Tensor:
        """The sine; NaN at infinity."""
    def sinh(self, x: Tensor) -> Tensor:
        """The hyperbolic sine."""
    def slice(
        self,
        x: Tensor,
        starts: SliceBounds,
        stops: SliceBounds,
        axes: Axes | None = None,
        steps: Axes | None = None,
    ) -> Tensor:
        """Return `x[start:stop:step]` along each of `axes`; None stands for the first axes.

        Bounds are Python's: negative ones count from the end, None is the end that a
        slice begins or ends at. A view, backwards too.
        Errors   ShapeError, AttributeRefused.
        """
    def slogdet(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the signs of the determinants of matrices [..., n, n] and the
        logarithms of their absolute values, as numpy.linalg.slogdet: two tensors [...],
        in range even where the determinant itself is not.

        Of a singular matrix they are 0 and -infinity. Errors  ShapeError, DTypeError.
        """
    def softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """exp(x - max) / sum(exp(x - max)) along an axis."""
    def softplus(self, x: Tensor) -> Tensor:
        """log(1 + exp(x))."""
    def softsign(self, x: Tensor) -> Tensor:
        """x / (1 + |x|)."""
    def solve(self, a: Tensor, b: Tensor) -> Tensor:
        """Solve a · x = b for x, as numpy.linalg.solve.

        A matrix with a pivot of exactly 0, where NumPy raises LinAlgError, gives NaN
        everywhere; the others of a batch are right all the same.
        Shapes   a [..., n, n], b [n] or [..., n, k] → [..., n] or [..., n, k]; the
                 axes of the batches broadcast
        Errors   ShapeError, DTypeError
        """
    def solve_triangular(
        self,
        a: Tensor,
        b: Tensor,
        *,
        lower: bool = False,
        trans: bool = False,
        unit_diagonal: bool = False,
    ) -> Tensor:
        """Solve a · x = b for triangular matrices, as scipy.linalg.solve_triangular.

        The other half of `a` is not read. A 0 on the diagonal, where SciPy raises
        LinAlgError, makes all of that matrix' unknowns NaN.
        Shapes   a [..., n, n], b [n] or [..., n, k] → [..., n] or [..., n, k]; the
                 axes of the batches broadcast
        lower    `a` is a lower triangle, otherwise an upper one
        trans    solve aᵀ · x = b
        unit_diagonal  the diagonal is taken for 1 and not read
        Errors   ShapeError, DTypeError
        """
    def sort(
        self, x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """Return the elements sorted along an axis; see `argsort`.

        PyTorch's returns the places, too: `argsort` gives those.
        """
    def space_to_depth(self, x: Tensor, blocksize: int) -> Tensor:
        """Move blocks of pixels into channels: [N, C, H, W] → [N, C·b², H/b, W/b], as
        ONNX's SpaceToDepth.

        Errors   ShapeError unless both sides are multiples of the block.
        """
    def split(self, x: Tensor, parts: Axes, axis: int = 0) -> list[Tensor]:
        """Split an axis into consecutive parts; views.

        parts   their sizes, as PyTorch's `split` and ONNX take them; one number: how
                many parts of equal size, as NumPy takes it

        Errors   ShapeError when they are not the whole axis.
        """
    def split_block(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the real and the imaginary half of a block tensor."""
    def sqrt(self, x: Tensor) -> Tensor:
        """The square root; NaN for a negative x."""
    def square(self, x: Tensor) -> Tensor:
        """Return the product of x with itself."""
    def squeeze(self, x: Tensor, axes: Axes | None = None) -> Tensor:
        """Remove these axes of size 1, or all such axes for None; a view.

        Errors   ShapeError for an axis of another size.
        """
    def stack(self, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Join tensors of one shape along a new axis. Errors  ShapeError."""
    def std(
        self,
        x: Tensor,
        axes: Axes | None = None,
        correction: float = 0.0,
        keep_dim: bool = False,
    ) -> Tensor:
        """Return the square root of `var`, with slope 0 where all elements are equal.

        PyTorch has the same slope there; that of `sqrt` itself is infinite at 0.
        """
    def stft(self, x: Tensor, frame: int, hop: int) -> Tensor:
        """Return the short-time spectrum [frames, ..., 2F] of rows [..., T]; no window,
        no padding.
        """
    def sub(self, x: Tensor | Operand, y: Tensor | Operand) -> Tensor:
        """x - y; integers wrap."""
    def sum(
        self, x: Tensor, axes: Axes | None = None, keep_dim: bool = False
    ) -> Tensor:
        """The sum over axes; 0 if there are no elements. Integers wrap in their dtype."""
    def swapaxes(self, x: Tensor, first: int, second: int) -> Tensor:
        """Exchange two axes, as NumPy's; a view."""
    def swiglu(self, x: Tensor, axis: int = -1, gate_first: bool = False) -> Tensor:
        """Return `glu` with SiLU: the first half of an axis times silu(the second)."""
    def swish(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x times sigmoid(alpha x); silu has alpha = 1."""
    def take(self, x: Tensor, indices: Any, axis: int | None = None) -> Tensor:
        """Select elements of an axis by index, as NumPy's; negative indices count from
        its end.

        indices   integers, an array of them or an integer tensor
        axis      None: of the elements in their order

        Errors   IndexRefused, when it is run for those of a tensor.
        """
    def take_along_axis(self, x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
        """Gather elements as `gather_elements` with broadcast other axes, as
        numpy.take_along_axis.
        """
    def tan(self, x: Tensor) -> Tensor:
        """The tangent, accurate away from its poles; NaN at infinity."""
    def tanh(self, x: Tensor) -> Tensor:
        """The hyperbolic tangent."""
    def tensordot(self, x: TensorLike, y: TensorLike, axes: Any = 2) -> Tensor:
        """Sum products over axes of x paired with axes of y, as numpy.tensordot.

        axes   how many of the last of x and the first of y, or those of x and those of
               y, in pairs

        Errors   ShapeError, DTypeError.
        """
    def thresholded_relu(self, x: Tensor, alpha: float = 1.0) -> Tensor:
        """x where x > alpha, else 0."""
    def tile(self, x: Tensor, repeats: Axes) -> Tensor:
        """Repeat `x` as a whole along its axes, as numpy.tile. Errors  ShapeError."""
    def topk(self, x: Tensor, k: int, axis: int = -1, largest: bool = True) -> Tensor:
        """Return the indices (i32) of the k largest or smallest elements along an axis,
        in order.

        Of equal values the smaller index comes first, and NaN after every number.
        """
    def topk_values(
        self, x: Tensor, k: int, axis: int = -1, largest: bool = True
    ) -> Tensor:
        """Return the values at the indices that `topk` returns, in the same order."""
    def trace(
        self, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
    ) -> Tensor:
        """Return the sum along a diagonal, as numpy.trace."""
    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Return x with its axes in the order of `perm`."""
    def tril(self, x: Tensor, k: Any = 0) -> Tensor:
        """Return x with 0 above the k-th diagonal of its last two axes, as numpy.tril.

        k   an integer, or a tensor of one
        Errors   ShapeError below two axes; DTypeError.
        """
    def triu(self, x: Tensor, k: Any = 0) -> Tensor:
        """Return x with 0 below the k-th diagonal of its last two axes; see `tril`."""
    def trunc(self, x: Tensor) -> Tensor:
        """The nearest integer not farther from 0 than x."""
    def unique(
        self, x: Tensor, size: int | None = None, fill_value: Any = 0
    ) -> tuple[Tensor, Tensor]:
        """Return the distinct values in sorted order, and their count.

        size   of how many they are given; None: of as many as there could be

        [...] → values [size] and a count (i32). Behind the last value stands
        `fill_value`. Where there are more than `size`, the first are given and the
        count, which is of all of them, says so. All NaN are one value.
        Errors   DTypeError, AttributeRefused.
        """
    def unsqueeze(self, x: Tensor, axes: Axes) -> Tensor:
        """Insert axes of size 1 at these positions of the result; a view.

        Errors   ShapeError.
        """
    def var(
        self,
        x: Tensor,
        axes: Axes | None = None,
        correction: float = 0.0,
        keep_dim: bool = False,
    ) -> Tensor:
        """Return the variance: the sum of squares around the mean / (n - correction).

        correction  NumPy's ddof, and 0 as there; PyTorch's is 1 when left out. Where it
                    is n or more the division is by 0, as in both

        Errors   ShapeError for no elements; DTypeError unless they are floats.
        """
    def vdot(self, x: TensorLike, y: TensorLike) -> Tensor:
        """Return the sum of products of all elements in their order, as numpy.vdot."""
    def welch_peaks(self, spectrum: Tensor, k: int, n_segments: int) -> Tensor:
        """Return packed (bin, power) pairs [B, 2k] of block spectra [B * S, 2n]."""
    def where(
        self, condition: Tensor, x: Tensor | Operand, y: Tensor | Operand
    ) -> Tensor:
        """Return `x` where `condition` (bool) is true, else `y`; all three broadcast.

        Two numbers or lists become what a constant of both of them would be.
        """
    def windows(
        self,
        x: Tensor,
        sizes: Axes,
        axes: Axes | None = None,
        steps: Axes = 1,
        dilations: Axes = 1,
    ) -> Tensor:
        """Return sliding windows, as numpy.lib.stride_tricks.sliding_window_view; a view.

        axes       one for each size, the last ones when it is None
        steps      every how many-th window; one for all or one for each
        dilations  how far apart the elements of a window are

        [..., n, ...] → [..., places, ..., *sizes]: the axes become the windows' places,
        and their elements the new last axes. Errors  ShapeError, AttributeRefused.
        """
    def zeros(self, shape: Axes, dtype: DTypeLike = "f32") -> Tensor:
        """Return a tensor of zeros."""
    def zeros_like(self, x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
        """Return zeros in the shape of x, and in its dtype unless another is named."""

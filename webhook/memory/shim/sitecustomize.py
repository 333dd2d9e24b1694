# Slicewarden caps GPU memory here for frameworks that read no cap from their environment.
# Python runs this file when it starts, because PYTHONPATH names its folder. It changes nothing until a framework is
# imported, it initialises no GPU, and it raises nothing. Then it runs the sitecustomize or usercustomize that Python
# would have found without it. To leave it out, annotate the pod: slicewarden.dev/memory-shim: "off".
import os
import sys


def say(text):
    try:
        sys.stderr.write("slicewarden: %s\n" % text)
    except Exception:
        pass


def failed(name):
    kind, error = sys.exc_info()[:2]
    say("no GPU memory cap for %s: %s: %s" % (name, kind.__name__, error))


class ProcessCap(object):
    """The most that one process may take: a fraction of each GPU, and MiB."""

    def __init__(self, env):
        self.fraction = float(env["SLICEWARDEN_MEMORY_FRACTION"])
        self.mib = int(env["SLICEWARDEN_MEMORY_MIB"])
        if not (0 < self.fraction < 1 and self.mib > 0):
            raise ValueError("fraction %s and %s MiB are no cap" % (self.fraction, self.mib))

    def torch(self, torch):
        set_fraction = getattr(torch._C, "_cuda_setMemoryFraction", None)
        if set_fraction is None:  # built without CUDA
            return
        get_fraction = getattr(torch._C, "_cuda_getMemoryFraction", None)  # newer releases have it
        original = torch.cuda.set_per_process_memory_fraction

        def set_per_process_memory_fraction(fraction, *args, **kwargs):
            if isinstance(fraction, float) and fraction > self.fraction:
                say("torch: set_per_process_memory_fraction(%s) is lowered to %s" % (fraction, self.fraction))
                fraction = self.fraction
            return original(fraction, *args, **kwargs)

        def limit():  # runs when CUDA is initialised, not before: the program may still fork
            try:
                for device in range(torch._C._cuda_getDeviceCount()):
                    if get_fraction is None or get_fraction(device) > self.fraction:
                        set_fraction(self.fraction, device)
            except Exception:
                failed("torch")

        set_per_process_memory_fraction.__doc__ = original.__doc__
        for module in (torch.cuda, torch.cuda.memory):
            module.set_per_process_memory_fraction = set_per_process_memory_fraction
        torch.cuda._lazy_call(limit)

    def gpu_options(self, options):
        devices = options.experimental.virtual_devices
        for device in devices:
            limits = list(device.memory_limit_mb)
            if sum(limits) > self.mib or not limits:
                del device.memory_limit_mb[:]
                device.memory_limit_mb.extend([one * self.mib // sum(limits) for one in limits] or [self.mib])
        if not devices and not 0 < options.per_process_gpu_memory_fraction <= self.fraction:
            options.per_process_gpu_memory_fraction = self.fraction

    def tensorflow_context(self, module):
        original = module.Context.config.fget

        def config(context):
            made = original(context)
            try:
                self.gpu_options(made.gpu_options)
            except Exception:
                failed("tensorflow")
            return made

        module.Context.config = property(config)

    def tensorflow_session(self, module):
        original = module.BaseSession.__init__

        def __init__(session, target="", graph=None, config=None):
            try:
                if config is not None:
                    own = type(config)()
                    own.CopyFrom(config)
                    self.gpu_options(own.gpu_options)
                    config = own
            except Exception:
                failed("tensorflow")
            original(session, target, graph, config)

        module.BaseSession.__init__ = __init__

    def onnxruntime(self, module):
        original = module.check_and_normalize_provider_args

        def check_and_normalize_provider_args(*args, **kwargs):
            providers, options = original(*args, **kwargs)
            try:
                for name, option in zip(providers, options):
                    if name in ("CUDAExecutionProvider", "ROCMExecutionProvider"):
                        chosen = int(option.get("gpu_mem_limit") or 0)
                        option["gpu_mem_limit"] = str(min(chosen or self.mib << 20, self.mib << 20))
            except Exception:
                failed("onnxruntime")
            return providers, options

        module.check_and_normalize_provider_args = check_and_normalize_provider_args


class Loader(object):
    """Wraps another loader for one import, and leaves it as it is: it may be another tool's proxy."""

    def __init__(self, loader, loaded):
        self.loader, self.loaded = loader, loaded

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.loaded(module.__name__, module)

    def __getattr__(self, name):
        return getattr(self.__dict__["loader"], name)


class Finder(object):
    """Calls a function on each wanted module as soon as it is imported, whichever loader loads it."""

    def __init__(self, wanted):
        self.wanted = wanted

    def find_spec(self, name, path=None, target=None):
        if name not in self.wanted:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module") and hasattr(spec.loader, "create_module"):
                    spec.loader = Loader(spec.loader, self.loaded)
                else:
                    say("no GPU memory cap for %s: its loader is %r" % (name, spec.loader))
                return spec
        return None

    def loaded(self, name, module):
        try:
            function = self.wanted.pop(name, None)
            if function is not None:
                function(module)
        except Exception:
            failed(name)


def start():
    if "SLICEWARDEN_MEMORY_FRACTION" not in os.environ or hasattr(sys, "_slicewarden"):
        return
    if sys.version_info < (3, 6):
        return say("no GPU memory cap in Python %d.%d" % sys.version_info[:2])
    cap = ProcessCap(os.environ)
    sys._slicewarden = finder = Finder(
        {
            "torch": cap.torch,
            "tensorflow.python.eager.context": cap.tensorflow_context,
            "tensorflow.python.client.session": cap.tensorflow_session,
            "onnxruntime.capi.onnxruntime_inference_collection": cap.onnxruntime,
        }
    )
    sys.meta_path.insert(0, finder)
    for name in list(finder.wanted):
        if name in sys.modules:
            finder.loaded(name, sys.modules[name])


def chain(name):
    """Run the module of this name that Python would have found without this file. Its errors are its own."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if not one or os.path.abspath(one) != here]
    own = sys.modules.pop(name, None)
    try:
        __import__(name)
    except ImportError as error:
        if getattr(error, "name", name) != name:
            raise
    finally:
        sys.modules.setdefault(name, own)
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if here in paths[1:]:  # OpenTelemetry's file puts its own folder first, and children would read only that
            paths.remove(here)
            os.environ["PYTHONPATH"] = os.pathsep.join([here] + paths)


try:
    start()
except Exception:
    failed("any framework")
if __name__ in ("sitecustomize", "usercustomize"):
    chain(__name__)

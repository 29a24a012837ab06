// The browser opens its GPU process while the modules are on their way.
navigator.gpu?.requestAdapter();

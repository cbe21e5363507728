"""The process of the pod injector: `bitfusion-injector` serves what ``injector`` decides as a webhook."""
